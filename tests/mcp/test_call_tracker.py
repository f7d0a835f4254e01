"""Matching of elicitations to calls, and the deadlines that pause until an elicitation is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import Context

import httpx2
import pytest
from mcp import types

from bot.domain.conversations import Author
from bot.domain.elicitations import MOST_ROUNDS, ElicitationAction, ElicitationRequest, ElicitationResult
from bot.mcp.active_calls import ActiveCall, ActiveCalls, CallDeadline
from bot.mcp.errors import RequestContext
from bot.mcp.redaction import Redaction
from bot.mcp.transports.http import ReadTimeout
from bot.ports import CallContext
from tests.mcp.toolboxes import ANA, LIMIT

BEN = Author("console", "ben", "Ben")
SURE = ElicitationResult(ElicitationAction.ACCEPT, {"sure": True})


class Pipe:
    """A connection on which an elicitation does not name its call."""

    def __init__(self) -> None:
        self.calls = ActiveCalls("s", Redaction())
        self.asked: list[str] = []

    async def call(self, author: Author = ANA, turn: str = "t1") -> ActiveCall:
        async def elicit(_question: ElicitationRequest) -> ElicitationResult:
            self.asked.append(f"{author.id} in {turn}")
            return SURE

        return await self.calls.begin(CallContext(author, f"{turn}:1", elicit=elicit))

    async def ask(self) -> str:
        """Ask for confirmation and return the answer that the server receives."""
        schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
        params = types.ElicitRequestFormParams(message="?", requested_schema=schema)
        # In surroundings of its own, as the task that reads a pipe has them.
        asking = asyncio.create_task(self.calls.on_elicitation(params), context=Context())
        async with asyncio.timeout(LIMIT):
            return (await asking).action


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def long() -> CallDeadline:
    return CallDeadline(LIMIT, LIMIT)


SENT = RequestContext(sent=True)


async def test_a_server_without_a_running_call_asks_no_user(pipe: Pipe) -> None:
    assert await pipe.ask() == "cancel"


async def test_endless_questions_without_a_call_do_not_fill_the_log(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3 * MOST_ROUNDS):
        assert await pipe.ask() == "cancel"
    assert len(caplog.records) == MOST_ROUNDS


async def test_the_only_call_is_the_one_it_is_about(pipe: Pipe) -> None:
    with (await pipe.call()).accept_elicitations(SENT, long()):
        assert await pipe.ask() == "accept"
    assert pipe.asked == ["ana in t1"]


async def test_of_several_calls_of_one_turn_it_is_the_oldest(pipe: Pipe) -> None:
    first, second = await pipe.call(), await pipe.call()
    with first.accept_elicitations(SENT, long()), second.accept_elicitations(SENT, long()):
        assert await pipe.ask() == "accept"
    assert len(pipe.asked) == 1


@pytest.mark.parametrize("other", [(BEN, "t2"), (ANA, "t2"), (BEN, "t1")])
async def test_of_calls_of_several_people_or_turns_it_is_none_and_then_there_is_one_at_a_time(
    pipe: Pipe, other: tuple[Author, str]
) -> None:
    first, second = await pipe.call(), await pipe.call(*other)
    with first.accept_elicitations(SENT, long()), second.accept_elicitations(SENT, long()):
        assert await pipe.ask() == "cancel"
        first.answered = second.answered = True
    third = asyncio.create_task(pipe.call())
    pipe.calls.end(first)
    await asyncio.wait({third}, timeout=0.05)
    assert not third.done()
    assert pipe.calls.busy_reason == "Server s is busy: a call to it is under way."
    pipe.calls.end(second)
    with (await third).accept_elicitations(SENT, long()):
        assert await pipe.ask() == "accept"
    assert pipe.asked == ["ana in t1"]


async def test_a_question_of_a_server_may_belong_to_a_call_that_was_given_up(pipe: Pipe) -> None:
    given_up = await pipe.call(BEN, "t2")
    with given_up.accept_elicitations(SENT, long()):
        pass
    pipe.calls.end(given_up)
    call = await pipe.call()
    with call.accept_elicitations(SENT, long()):
        assert await pipe.ask() == "cancel"
        assert pipe.asked == []
        pipe.calls.reset_elicitations()
        assert await pipe.ask() == "accept"


@pytest.mark.parametrize("answered", [True, False])
async def test_a_call_that_was_answered_or_never_sent_is_not(pipe: Pipe, answered: bool) -> None:
    other = await pipe.call(BEN, "t2")
    with other.accept_elicitations(RequestContext(sent=answered), long()):
        other.answered = answered
    pipe.calls.end(other)
    with (await pipe.call()).accept_elicitations(SENT, long()):
        assert await pipe.ask() == "accept"
    assert pipe.asked == ["ana in t1"]


async def test_while_an_admin_reads_something_it_may_be_about_that(pipe: Pipe) -> None:
    with (await pipe.call()).accept_elicitations(SENT, long()):
        with pipe.calls.other_request():
            assert await pipe.ask() == "cancel"
        assert await pipe.ask() == "accept"


async def test_no_user_is_asked_about_a_call_not_sent_yet_or_ended(pipe: Pipe) -> None:
    call = await pipe.call()
    assert await pipe.ask() == "cancel"
    with call.accept_elicitations(SENT, long()):
        pass
    assert await pipe.ask() == "cancel"
    assert pipe.asked == []


async def test_a_call_may_ask_so_often_and_not_more(pipe: Pipe) -> None:
    with (await pipe.call()).accept_elicitations(SENT, long()):
        heard = [await pipe.ask() for _ in range(MOST_ROUNDS + 2)]
    assert heard == ["accept"] * MOST_ROUNDS + ["cancel"] * 2


# time


async def test_a_call_that_hears_nothing_is_over_after_its_time() -> None:
    left = CallDeadline(0.05, 9.0)
    with pytest.raises(TimeoutError):
        async with left:
            await asyncio.Event().wait()
    assert 0.049 < left.waited < 1.0


async def test_no_time_passes_while_a_person_is_asked() -> None:
    left = CallDeadline(0.1, 0.1)
    async with left:
        with left.pause():
            with left.pause():
                await asyncio.sleep(0.15)
            left.restart_silence()
            await asyncio.sleep(0.15)
    assert left.paused_seconds > 0.299
    assert left.waited == pytest.approx(0.1, abs=0.001)


async def test_time_goes_on_when_they_have_answered() -> None:
    left = CallDeadline(0.1, 0.1)

    async def asking_and_then_silent() -> None:
        async with left:
            with left.pause():
                await asyncio.sleep(0.15)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asking_and_then_silent()
    assert left.waited == pytest.approx(0.1, abs=0.01)


async def chunks(*pauses: float) -> AsyncIterator[bytes]:
    for pause in pauses:
        await asyncio.sleep(pause)
        yield b"x"


def silence(seconds: float, attempt: RequestContext) -> ReadTimeout:
    return ReadTimeout.take_from(httpx2.Request("GET", "http://s", extensions={"timeout": {"read": seconds}}), attempt)


async def test_an_answer_that_breaks_off_is_not_waited_for_any_longer() -> None:
    limit = silence(0.2, RequestContext())
    coming = chunks(0.0, 99.0)
    assert await limit.receive_chunk(coming) == b"x"
    with pytest.raises(httpx2.ReadTimeout):
        await limit.receive_chunk(coming)


async def test_an_answer_may_pause_for_as_long_as_a_person_is_asked() -> None:
    attempt = RequestContext()
    limit = silence(0.3, attempt)
    coming = chunks(0.4, 0.0)
    with attempt.count_elicitation():
        assert await limit.receive_chunk(coming) == b"x"
    assert await limit.receive_chunk(coming) == b"x"
    assert await limit.receive_chunk(coming) is None


async def test_after_that_the_answer_has_its_whole_time_again() -> None:
    attempt = RequestContext()
    limit = silence(0.6, attempt)
    with attempt.count_elicitation():
        waiting = asyncio.create_task(limit.receive_chunk(chunks(0.9)))
        await asyncio.wait({waiting}, timeout=0.7)
    assert await waiting == b"x"
