from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.completions import Completion
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import Claim, ModelStep, Receipt, TurnStatus
from bot.engine.engine import Engine
from bot.logs import in_context, log_to_stderr
from bot.storage.turn_log.log import SqlTurnLog
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, NEWEST, message, running, say, until

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")
OUT_OF_REACH = ConversationKey("other", "w", "elsewhere", "1")


def nth_message(n: int) -> InboundMessage:
    """Return the `n`th message, in its own conversation."""
    return message(f"m{n}", conversation=ConversationKey("test", "w", "many", str(n)))


async def for_ever(*_: object) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError


async def looked_round(engine: Engine) -> None:
    """Wait until a poll has found no waiting turns."""
    await until(lambda: not engine.worker.capacity.others_wait)


def without_claims(harness: EngineHarness) -> asyncio.Event:
    """Let `claim` return nothing, and only after the event is set."""
    may_end = asyncio.Event()

    async def stuck(*_: Any) -> Sequence[Claim]:
        await may_end.wait()
        return ()

    harness.log.claim = stuck  # type: ignore[method-assign, assignment]
    return may_end


async def test_a_message_is_answered_without_looking_round_for_it(harness: EngineHarness) -> None:
    harness.model.script = [say("Hello.")]
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        may_end = without_claims(harness)
        receipt = await engine.receive(message("hi"))
        view = await harness.surface.wait_for_end(receipt.turn_id)
        may_end.set()
    assert (view.turn.status, view.steps[0].message.text) == (TurnStatus.DONE, "Hello.")  # type: ignore[union-attr]


async def test_a_turn_without_capacity_waits_until_there_is_some(harness: EngineHarness) -> None:
    harness.model.script = [for_ever, say("Second.")]
    engine = harness.engine(most_turns=1)
    async with running(engine):
        await looked_round(engine)
        first, second = await asyncio.gather(
            engine.receive(message("one")), engine.receive(message("two", conversation=ELSEWHERE))
        )
        await until(lambda: len(harness.model.requests) == 1)
        assert len(engine.worker.turns) == 1
        (held,) = engine.worker.turns
        await engine.stop(held, message("").author)
        other = second if held == first.turn_id else first
        assert (await harness.surface.wait_for_end(other.turn_id)).turn.status is TurnStatus.DONE


async def test_a_turn_that_is_being_claimed_takes_capacity_too(harness: EngineHarness) -> None:
    claimed, go_on = asyncio.Event(), asyncio.Event()
    claim = harness.log.claim

    async def slow(*asked: Any) -> Sequence[Claim]:
        found = await claim(*asked)
        if found:
            claimed.set()
            await go_on.wait()
        return found

    harness.log.claim = slow  # type: ignore[method-assign, assignment]
    harness.model.script = [for_ever, for_ever]
    engine = harness.engine(most_turns=1)
    first = await harness.log.enqueue(message("one"))
    async with running(engine):
        async with asyncio.timeout(10):
            await claimed.wait()
        second = await engine.receive(message("two", conversation=ELSEWHERE))
        go_on.set()
        await until(lambda: first.turn_id in engine.worker.turns)
        assert tuple(engine.worker.turns) == (first.turn_id,)
        assert (await harness.log.get_view(second.turn_id)).turn.status is TurnStatus.QUEUED


async def test_no_message_overtakes_those_that_wait_for_room(harness: EngineHarness) -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()
    claim = harness.log.claim

    async def slow(*asked: Any) -> Sequence[Claim]:
        looking.set()
        await go_on.wait()
        return await claim(*asked)

    harness.model.script = [for_ever] * 4
    engine = harness.engine(most_turns=2)
    async with running(engine):
        await looked_round(engine)
        first, second, third = [await engine.receive(nth_message(n)) for n in range(3)]
        await until(lambda: set(engine.worker.turns) == {first.turn_id, second.turn_id})
        harness.log.claim = slow  # type: ignore[method-assign, assignment]
        looking.clear()
        await engine.stop(first.turn_id, ANA)
        async with asyncio.timeout(10):
            await looking.wait()
        await engine.stop(second.turn_id, ANA)
        await until(lambda: not engine.worker.turns)
        fourth = await engine.receive(nth_message(3))
        assert not engine.worker.turns
        go_on.set()
        await until(lambda: tuple(engine.worker.turns) == (third.turn_id, fourth.turn_id))


async def test_a_turn_that_cannot_be_shown_here_is_not_begun_here(harness: EngineHarness) -> None:
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        receipt = await engine.receive(message("hi", conversation=OUT_OF_REACH))
        assert tuple(engine.worker.turns) == ()
        assert (await harness.log.get_view(receipt.turn_id)).turn.status is TurnStatus.QUEUED


async def test_a_turn_is_taken_by_the_first_process_that_claims(harness: EngineHarness) -> None:
    async def never(_message: InboundMessage) -> tuple[Receipt, Claim | None]:
        raise AssertionError

    harness.model.script = [say("Hello.")]
    harness.log.enqueue_and_claim = never  # type: ignore[method-assign, assignment]
    harness.log.shares_turns = True
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        receipt = await engine.receive(message("hi"))
        assert (await harness.surface.wait_for_end(receipt.turn_id)).turn.status is TurnStatus.DONE


async def test_a_message_being_received_when_the_process_leaves_is_released(harness: EngineHarness) -> None:
    taking, go_on = harness.hold_up_taking_in()
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        receiving = asyncio.create_task(engine.receive(message("hi")))
        async with asyncio.timeout(10):
            await taking.wait()
    go_on.set()
    async with asyncio.timeout(10):
        receipt = await receiving
    another = SqlTurnLog(harness.database)
    assert await another.acquire_delivery(receipt.turn_id, NEWEST) == {}
    (again,) = await another.claim(1)
    assert (again.turn_id, again.recoveries) == (receipt.turn_id, 0)


async def test_a_message_whose_sender_stops_waiting_is_answered_all_the_same(
    harness: EngineHarness,
) -> None:
    taken = asyncio.Event()
    take_in = harness.log.enqueue_and_claim

    async def slow(received: InboundMessage) -> tuple[Receipt, Claim | None]:
        await take_in(received)
        taken.set()
        await asyncio.Event().wait()
        raise AssertionError

    harness.log.enqueue_and_claim = slow  # type: ignore[method-assign, assignment]
    harness.model.script = [say("Hello.")]
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        receiving = asyncio.create_task(engine.receive(message("hi")))
        async with asyncio.timeout(10):
            await taken.wait()
        receiving.cancel()
        view = await harness.surface.wait_for(lambda view: view.turn.status is TurnStatus.DONE)
    assert [step.message.text for step in view.steps if isinstance(step, ModelStep)] == ["Hello."]


async def test_a_turn_does_not_end_with_the_request_it_came_with(
    harness: EngineHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """The turn runs in the worker's own context: its log lines name the turn, not the request."""
    log_to_stderr("info", "json")

    async def speak(*_: object) -> Completion:
        logging.getLogger("bot.llm").warning("spoken")
        return say("Done.")

    harness.model.script = [speak]
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        with in_context(request="r-1"):
            receipt = await engine.receive(message("hi"))
        await harness.surface.wait_for_end(receipt.turn_id)
    (line,) = [entry for entry in map(json.loads, capsys.readouterr().err.splitlines()) if entry["message"] == "spoken"]
    assert (line["turn"], line["conversation"]) == (receipt.turn_id, str(message("").conversation))
    assert "request" not in line
