"""Fallback from one model to the next."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelRequest,
    StopReason,
    TextDelta,
)
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, ToolResult, assistant, user
from bot.domain.tools import Tool
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable, SmallerWindow
from bot.llm.models import BARRED_SECONDS, REST_SECONDS, FallbackModel

QUESTION = ModelRequest((user("Hi"),))
BUSY = ModelUnavailable("The first is busy.", retry_after=90.0)
AWAY = ModelUnavailable("The first is away.")
BARRED = ModelBarred("The first wants to be paid.")
WITH_QUOTE = ModelUnavailable("The first is asked too much (429): calm down, rate: 3.")
WITH_QUOTE.brief = "The first is asked too much (429)."


class Scripted:
    """A model that answers with its name, or raises the next of `failures`, after `word` if it is set."""

    def __init__(
        self,
        name: str,
        *failures: ModelError | None,
        word: str = "",
        images: bool = False,
        tools: bool = True,
        window: int = 128_000,
    ) -> None:
        self._name = name
        self._failures = list(failures)
        self._word = word
        self.capabilities = Capabilities(tools, images, documents=images, context_tokens=window)
        self.asked = 0
        self.closed = False

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked += 1
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            if self._word:
                yield TextDelta(self._word)
            raise failure
        yield TextDelta(self._name)
        yield Completion(assistant(self._name), StopReason.ANSWERED)

    async def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def chain(models: Sequence[Scripted], clock: Clock | None = None) -> FallbackModel:
    return FallbackModel({f"model-{n}": model for n, model in enumerate(models)}, clock=clock or Clock())


async def reply_text(model: FallbackModel, request: ModelRequest = QUESTION) -> str:
    async with aclosing(model.stream(request)) as events:
        return "".join([event.text async for event in events if isinstance(event, TextDelta)])


async def test_the_preferred_model_answers_while_it_is_well() -> None:
    first, second = Scripted("first"), Scripted("second")
    assert await reply_text(chain((first, second))) == "first"
    assert second.asked == 0


@pytest.mark.parametrize("failure", [BUSY, AWAY, BARRED], ids=["busy", "away", "barred"])
async def test_another_answers_at_once_where_the_first_has_said_nothing(failure: ModelError) -> None:
    assert await reply_text(chain((Scripted("first", failure), Scripted("second")))) == "second"


@pytest.mark.parametrize(
    "failure", [ModelRejected("Odd request."), ContextTooLong("Too long.")], ids=["request", "length"]
)
async def test_an_invalid_request_is_not_sent_to_a_fallback(failure: ModelError) -> None:
    second = Scripted("second")
    with pytest.raises(ModelRejected) as caught:
        await reply_text(chain((Scripted("first", failure), second)))
    assert caught.value is failure
    assert second.asked == 0


async def test_a_begun_reply_is_discarded_by_its_reader_at_a_fallback() -> None:
    model = chain((Scripted("first", AWAY, word="Half a"), Scripted("second")))
    with pytest.raises(ModelUnavailable, match="model-1 is asked instead") as caught:
        await reply_text(model)
    assert caught.value.retry_after == 0.0
    assert await reply_text(model) == "second"


@pytest.mark.parametrize("word", ["", "Half a"])
async def test_a_model_with_smaller_limits_gets_no_request_made_for_another(word: str) -> None:
    second, third = Scripted("second", AWAY, window=8_000), Scripted("third", window=8_000)
    model = chain((Scripted("first", AWAY, word=word), second, third))
    with pytest.raises(SmallerWindow, match="The first is away"):
        await reply_text(model)
    assert second.asked == 0
    assert model.capabilities.context_tokens == 8_000
    assert await reply_text(model) == "third"


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [(AWAY, REST_SECONDS), (BUSY, 90.0), (BARRED, BARRED_SECONDS)],
    ids=["away", "busy", "barred"],
)
async def test_a_model_that_failed_rests_for_a_while(failure: ModelError, seconds: float) -> None:
    clock, first, second = Clock(), Scripted("first", failure), Scripted("second")
    model = chain((first, second), clock)
    await reply_text(model)
    clock.now += seconds - 1
    assert await reply_text(model) == "second"
    assert first.asked == 1
    clock.now += 1
    assert await reply_text(model) == "first"


@pytest.mark.parametrize("busy_first", [True, False])
async def test_where_all_fail_and_one_may_answer_later_that_one_is_waited_for(busy_first: bool) -> None:
    busy = ModelUnavailable("It is asked too much.", retry_after=1.0)
    pair = [Scripted("busy", busy), Scripted("barred", BARRED)]
    with pytest.raises(ModelUnavailable) as caught:
        await reply_text(chain(pair if busy_first else pair[::-1]))
    assert caught.value is busy


async def test_where_all_are_busy_the_one_that_is_back_first_is_waited_for() -> None:
    soon = ModelUnavailable("The first is asked too much.", retry_after=1.0)
    with pytest.raises(ModelUnavailable) as caught:
        await reply_text(chain((Scripted("first", soon), Scripted("second", BUSY))))
    assert caught.value is soon


async def test_a_model_without_tool_search_gets_no_request_made_for_one_with_it() -> None:
    second = Scripted("second")
    second.capabilities = Capabilities(searches=False)
    both = chain((Scripted("first", AWAY), second))
    with pytest.raises(SmallerWindow):
        await reply_text(both, replace(QUESTION, tools=(Tool("s__t", "s", "t"),)))
    assert not both.capabilities.searches
    assert await reply_text(both) == "second"


async def test_a_model_without_tool_search_gets_requests_without_it() -> None:
    second = Scripted("second")
    second.capabilities = Capabilities(searches=False)
    assert await reply_text(chain((Scripted("first", AWAY), second))) == "second"


async def test_a_model_that_has_answered_rests_no_longer() -> None:
    first, second = Scripted("first", BUSY), Scripted("second", None, AWAY)
    both = chain((first, second))
    assert [await reply_text(both) for _ in range(3)] == ["second", "first", "first"]
    assert (first.asked, second.asked) == (3, 2)


async def test_if_all_fail_the_last_failure_is_raised() -> None:
    last = ModelUnavailable("The second is away, too.")
    with pytest.raises(ModelUnavailable) as caught:
        await reply_text(chain((Scripted("first", AWAY), Scripted("second", last))))
    assert caught.value is last


async def test_where_all_rest_the_one_that_has_rested_soonest_is_asked() -> None:
    clock, first, second = Clock(), Scripted("first", BARRED), Scripted("second", AWAY)
    model = chain((first, second), clock)
    with pytest.raises(ModelUnavailable):
        await reply_text(model)
    assert await reply_text(model) == "second"
    assert first.asked == 1


async def test_its_capabilities_are_those_of_the_model_asked_next() -> None:
    model = chain((Scripted("first", AWAY, images=True), Scripted("second")))
    assert model.capabilities.images
    await reply_text(model)
    assert not model.capabilities.images


async def note(model: FallbackModel, request: ModelRequest = QUESTION) -> str:
    async with aclosing(model.stream(request)) as events:
        *_, last = [event async for event in events]
    assert isinstance(last, Completion)
    return last.note


async def test_nothing_is_to_be_said_where_the_preferred_model_answers() -> None:
    assert await note(chain((Scripted("first"), Scripted("second")))) == ""


@pytest.mark.parametrize(
    ("failure", "because"),
    [
        (WITH_QUOTE, "The first is asked too much (429)"),
        (AWAY, "The first is away"),
        (BARRED, "The first wants to be paid"),
    ],
)
async def test_users_read_which_model_answers_instead_and_why(failure: ModelError, because: str) -> None:
    model = chain((Scripted("first", failure), Scripted("second")))
    for _ in range(2):  # also during the backoff
        assert await note(model) == f"Answered by model-1 instead of model-0: {because}."


async def test_omissions_of_the_other_model_are_reported() -> None:
    model_request = ModelRequest(
        (
            Message(MessageRole.USER, (FilePart(b"%PDF-", "application/pdf", "plan.pdf"),)),
            Message(MessageRole.TOOL, (ToolResult("c1", (ImagePart(b"...", "image/png"),)),)),
        )
    )
    model = chain((Scripted("first", AWAY, images=True), Scripted("second", tools=False)))
    assert (await note(model, model_request)).endswith(" It sees no images, reads no PDF and uses no tools.")
    assert (await note(model)).endswith(" It uses no tools.")


async def test_a_model_that_does_the_same_leaves_nothing_out() -> None:
    model_request = ModelRequest((Message(MessageRole.USER, (ImagePart(b"...", "image/png"),)),))
    model = chain((Scripted("first", AWAY, images=True, tools=False), Scripted("second", images=True, tools=False)))
    assert await note(model, model_request) == "Answered by model-1 instead of model-0: The first is away."


async def test_all_are_closed() -> None:
    models = (Scripted("first"), Scripted("second"))
    await chain(models).close()
    assert [model.closed for model in models] == [True, True]
