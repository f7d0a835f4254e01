"""Metrics of a language model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from time import monotonic

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, Usage, UsageReported
from bot.domain.metrics import MetricSink, ModelAnswered, ModelOutcome
from bot.errors import ModelRejected
from bot.ports import LanguageModel


class InstrumentedModel:
    """A model with metrics: duration, time to the first token, outcome, tokens. Its events carry `label` as the model.

    `clock` is in seconds and never jumps.
    """

    def __init__(
        self, model: LanguageModel, label: str, observe: MetricSink, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._model = model
        self._label = label
        self._observe = observe
        self._clock = clock
        self._known = model.capabilities
        self._named = replace(self._known, model=label)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model."""
        if self._known is not self._model.capabilities:
            self._known = self._model.capabilities
            self._named = replace(self._known, model=self._label)
        return self._named

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events. The answer is measured when the stream ends or is closed."""
        began = self._clock()
        first: float | None = None
        named, usage = False, Usage()
        outcome: ModelOutcome = "unavailable"  # also where the stream ends without a Completion
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, UsageReported):
                        named = True
                        yield replace(event, model=self._label)
                        continue
                    if first is None:
                        first = self._clock() - began
                    if isinstance(event, Completion):
                        outcome, usage = "answered", event.usage
                        event = replace(event, model=self._label)  # noqa: PLW2901 - the last one
                    elif not named:
                        named = True
                        yield UsageReported(model=self._label)
                    yield event
        except ModelRejected:
            outcome = "rejected"
            raise
        except (asyncio.CancelledError, GeneratorExit):
            if outcome != "answered":
                outcome = "stopped"
            raise
        finally:
            seconds = self._clock() - began
            self._observe(ModelAnswered(self._label, outcome, seconds, first, usage.input_tokens, usage.output_tokens))

    async def close(self) -> None:
        """Close the connections."""
        await self._model.close()
