"""Metrics of a model's completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest

from bot.domain.completions import (
    Capabilities,
    Completion,
    ModelEvent,
    ModelLimits,
    ModelRequest,
    StopReason,
    TextDelta,
    Usage,
    UsageReported,
)
from bot.domain.messages import assistant, user
from bot.domain.metrics import MetricEvent, ModelAnswered, null_sink
from bot.errors import ModelRejected, ModelUnavailable
from bot.llm.models import InstrumentedModel

REQUEST = ModelRequest(messages=(user("hi"),))
ANSWER = Completion(assistant("Hello."), StopReason.ANSWERED, Usage(100, 20))


class Slow:
    """A model that streams a script, one second before each event."""

    def __init__(self, *script: ModelEvent | Exception) -> None:
        self.requests: list[ModelRequest] = []
        self.script = script
        self.time = 0.0
        self.capabilities = Capabilities()
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        for event in self.script:
            self.time += 1.0
            if isinstance(event, Exception):
                raise event
            yield event

    async def close(self) -> None:
        self.closed = True


def instrument_model(model: Slow) -> tuple[InstrumentedModel, list[MetricEvent]]:
    metrics: list[MetricEvent] = []
    return InstrumentedModel(model, "small", metrics.append, clock=lambda: model.time), metrics


async def everything(model: InstrumentedModel, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def test_an_answer_is_handed_on_with_its_models_name_and_measured_once() -> None:
    model, metrics = instrument_model(Slow(TextDelta("Hel"), TextDelta("lo."), ANSWER))
    named = replace(ANSWER, model="small")
    assert await everything(model) == [UsageReported(model="small"), TextDelta("Hel"), TextDelta("lo."), named]
    assert metrics == [ModelAnswered("small", "answered", 3.0, 1.0, 100, 20)]


async def test_usage_is_handed_on_with_the_models_name_and_is_no_beginning_of_the_answer() -> None:
    counted = UsageReported(Usage(100, 1))
    model, metrics = instrument_model(Slow(counted, TextDelta("Hello."), ANSWER))
    streamed = await everything(model)
    assert streamed == [replace(counted, model="small"), TextDelta("Hello."), replace(ANSWER, model="small")]
    assert metrics == [ModelAnswered("small", "answered", 3.0, 2.0, 100, 20)]


async def test_an_answer_counts_as_such_though_its_stream_is_not_read_to_the_end() -> None:
    model, metrics = instrument_model(Slow(TextDelta("Hello."), ANSWER))
    async with aclosing(model.stream(REQUEST)) as events:
        async for event in events:
            if isinstance(event, Completion):
                break
    assert metrics == [ModelAnswered("small", "answered", 2.0, 1.0, 100, 20)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ((ModelUnavailable("busy"),), ModelAnswered("small", "unavailable", 1.0)),
        ((TextDelta("x"), ModelUnavailable("cut off")), ModelAnswered("small", "unavailable", 2.0, 1.0)),
        ((ModelRejected("no key"),), ModelAnswered("small", "rejected", 1.0)),
    ],
)
async def test_a_failure_is_raised_and_measured(
    script: tuple[ModelEvent | Exception, ...], expected: MetricEvent
) -> None:
    model, metrics = instrument_model(Slow(*script))
    with pytest.raises((ModelUnavailable, ModelRejected)):
        await everything(model)
    assert metrics == [expected]


async def test_a_stream_that_ends_without_an_answer_is_none() -> None:
    model, metrics = instrument_model(Slow(TextDelta("x")))
    await everything(model)
    assert metrics == [ModelAnswered("small", "unavailable", 1.0, 1.0)]


async def test_a_turn_that_is_stopped_meanwhile_is_measured_as_such() -> None:
    model, metrics = instrument_model(Slow(TextDelta("x"), ANSWER))
    async with aclosing(model.stream(REQUEST)) as events:
        async for _ in events:
            break
    assert metrics == [ModelAnswered("small", "stopped", 1.0, 1.0)]


async def test_so_is_one_whose_task_is_cancelled() -> None:
    class Silent(Slow):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            began.set()
            await asyncio.Event().wait()
            yield ANSWER

    began = asyncio.Event()
    model, metrics = instrument_model(Silent())
    asking = asyncio.create_task(everything(model))
    await began.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert metrics == [ModelAnswered("small", "stopped", 0.0)]


async def test_capabilities_and_close_are_the_models_own() -> None:
    inner = Slow()
    model, _ = instrument_model(inner)
    assert model.capabilities == replace(inner.capabilities, model="small")
    await model.close()
    assert inner.closed


async def test_only_times_that_are_set_replace_those_of_a_request() -> None:
    inner = Slow(ANSWER)
    short = ModelLimits(max_tokens=7, first_seconds=90.0, idle_seconds=30.0, total_seconds=150.0)
    await everything(InstrumentedModel(inner, "small", null_sink), replace(REQUEST, limits=short))
    slow = InstrumentedModel(inner, "small", null_sink, limits=ModelLimits(total_seconds=900.0))
    await everything(slow, replace(REQUEST, limits=short))
    assert [request.limits for request in inner.requests] == [short, replace(short, total_seconds=900.0)]
