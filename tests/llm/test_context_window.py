"""Discovery of a model's context window: the service is queried in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, StopReason, TextDelta
from bot.domain.messages import assistant, user
from bot.errors import ContextTooLong, ModelError, ModelUnavailable
from bot.llm.models import MAX_LOOKUPS, Availability, Available, DiscoveredWindow, NotListed, NotReported

QUESTION = ModelRequest((user("Hi"),))
PATIENCE = 60.0


class Asked:
    """A model that answers at once. Each lookup of its service has the next of the given results."""

    def __init__(self, *says: Availability | Exception) -> None:
        self.capabilities = Capabilities(context_tokens=128_000)
        self.service_name, self.tells_window = "The service", True
        self._says = list(says)
        self.looks = 0
        self.looked = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False
        self.failure: ModelError | None = None

    async def stream(self, _request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self.failure:
            raise self.failure
        yield TextDelta("Hello.")
        yield Completion(assistant("Hello."), StopReason.ANSWERED)

    async def model_names(self) -> Sequence[str]:
        return ()

    async def look_up(self) -> Availability:
        self.looks += 1
        try:
            await self.open.wait()
            said = self._says.pop(0)
            if isinstance(said, Exception):
                raise said
            return said
        finally:
            self.looked.set()

    async def close(self) -> None:
        self.closed = True


async def window_after_answer(model: DiscoveredWindow) -> int:
    assert [event async for event in model.stream(QUESTION)]
    return model.capabilities.context_tokens


async def wait_for_lookup(inner: Asked) -> None:
    """Wait until the running lookup has ended."""
    async with asyncio.timeout(PATIENCE):
        await inner.looked.wait()
        inner.looked.clear()
        while any(task.get_name().startswith("window of") for task in asyncio.all_tasks()):
            await asyncio.sleep(0)


async def test_the_first_question_goes_on_while_the_service_is_asked() -> None:
    inner = Asked(Available(32_768))
    inner.open.clear()
    model = DiscoveredWindow(inner, "ollama:small")
    assert await window_after_answer(model) == 128_000
    inner.open.set()
    await wait_for_lookup(inner)
    assert await window_after_answer(model) == 32_768
    assert inner.looks == 1
    await model.close()
    assert inner.closed


async def test_only_one_look_is_under_way() -> None:
    inner = Asked(Available(32_768))
    inner.open.clear()
    model = DiscoveredWindow(inner, "ollama:small")
    for _ in range(MAX_LOOKUPS):
        await window_after_answer(model)
    inner.open.set()
    await wait_for_lookup(inner)
    assert inner.looks == 1
    await model.close()


async def test_a_service_that_finds_a_question_too_long_is_asked_for_its_window() -> None:
    inner = Asked(Available(9_000))
    inner.failure = ContextTooLong("Too long.")
    model = DiscoveredWindow(inner, "openai:small")
    with pytest.raises(ContextTooLong):
        await window_after_answer(model)
    await wait_for_lookup(inner)
    assert model.capabilities.context_tokens == 9_000
    await model.close()


async def test_a_service_that_does_not_answer_is_not_asked_for_more() -> None:
    inner = Asked()
    inner.failure = ModelUnavailable("It is away.")
    model = DiscoveredWindow(inner, "openai:small")
    with pytest.raises(ModelUnavailable):
        await window_after_answer(model)
    assert inner.looks == 0
    await model.close()


async def test_a_model_that_starts_with_its_first_question_is_looked_at_again() -> None:
    inner = Asked(Available(), Available(4_096))
    model = DiscoveredWindow(inner, "ollama:small")
    for window in (128_000, 128_000, 4_096):
        assert await window_after_answer(model) == window
        if window != 4_096:
            await wait_for_lookup(inner)
    assert inner.looks == 2
    await model.close()


@pytest.mark.parametrize(
    ("said", "looks"),
    [
        (NotReported(), 1),
        (NotListed(("other",)), 1),
        (Available(), MAX_LOOKUPS),
        (Available(17), MAX_LOOKUPS),
        (ModelUnavailable("It is away."), MAX_LOOKUPS),
        (RuntimeError("a bug"), MAX_LOOKUPS),
    ],
)
async def test_a_service_that_does_not_say_is_soon_left_alone(said: Availability | Exception, looks: int) -> None:
    inner = Asked(*[said] * 10)
    model = DiscoveredWindow(inner, "openai:small")
    for n in range(5):
        assert await window_after_answer(model) == 128_000
        if n < looks:
            await wait_for_lookup(inner)
    assert inner.looks == looks
    await model.close()


async def test_other_capabilities_stay_the_models_own() -> None:
    inner = Asked(Available(9_000))
    model = DiscoveredWindow(inner, "openai:small")
    await window_after_answer(model)
    await wait_for_lookup(inner)
    inner.capabilities = Capabilities(tools=False)
    assert model.capabilities == Capabilities(tools=False, context_tokens=9_000)
    await model.close()


async def test_closing_ends_a_look_that_is_under_way() -> None:
    inner = Asked(Available(9_000))
    inner.open.clear()
    model = DiscoveredWindow(inner, "openai:small")
    await window_after_answer(model)
    await model.close()
    assert inner.closed
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("window of")]
