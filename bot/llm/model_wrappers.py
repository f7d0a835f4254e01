"""Language models around other models: with fallbacks, with the context window that a service reports, with metrics.

The composition root puts them around providers. None of them knows a provider.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import monotonic

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, Usage, UsageReported
from bot.domain.metrics import MetricSink, ModelAnswered, ModelOutcome
from bot.errors import ContextTooLong, ModelBarred, ModelError, ModelRejected, ModelUnavailable, SmallerWindow
from bot.llm.model_availability import Available, ListsModels
from bot.llm.request_adaptation import has_documents, has_images
from bot.ports import LanguageModel

log = logging.getLogger(__name__)

MOST_LOOKS = 3
SMALLEST = 1_000
"""Tokens. A smaller reported window is ignored."""
REST_SECONDS = 30.0
BARRED_SECONDS = 300.0
"""A wrong key or an empty account is a matter for people."""


class FallbackModel:
    """Several models as one: the first that is not resting answers. A model that fails rests, so that not every
    question waits for it to fail again.

    `models` are by name, the preferred one first. `clock` is in seconds and never jumps.
    """

    def __init__(self, models: Mapping[str, LanguageModel], *, clock: Callable[[], float] = monotonic) -> None:
        self._models = dict(models)
        self._clock = clock
        self._preferred = next(iter(self._models))
        self._rested_at = dict.fromkeys(self._models, 0.0)
        self._why: dict[str, ModelError] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model that would be asked now."""
        return self._models[self._next()].capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. If a model fails after the beginning of its answer, the reader must start again: this raises
        ModelUnavailable without a wait, and the request is to be repeated. If the next model has a smaller window than
        the one that the request was made for, this raises SmallerWindow. If no model has answered, the error of one
        that may answer later is raised.
        """
        asked: set[str] = set()
        problems: list[ModelError] = []
        made_for = self.capabilities
        while True:
            name, begun = self._next(asked), False
            asked.add(name)
            try:
                async with aclosing(self._models[name].stream(request)) as events:
                    async for event in events:
                        begun = True
                        if isinstance(event, Completion):
                            self._rested_at[name] = 0.0
                            if name != self._preferred:
                                event = replace(event, note=self._note(name, request))  # noqa: PLW2901 - the last one
                        yield event
            except (ModelUnavailable, ModelBarred) as problem:
                self._rest(name, problem)
                problems.append(problem)
                other = self._next(asked) if len(asked) < len(self._models) else ""
                if not other:
                    error = _most_hopeful(problems)
                    raise error from error.__cause__
                log.warning("%s %s is asked instead.", problem.cause, other)
                if _takes_less(self._models[other].capabilities, made_for, request):
                    raise SmallerWindow(problem.cause, problem.fix) from problem
                if begun:
                    raise ModelUnavailable(f"{problem.cause} {other} is asked instead.", retry_after=0.0) from problem
            else:
                return

    async def close(self) -> None:
        """Close the connections of all models."""
        for model in self._models.values():
            await model.close()

    def _next(self, asked: set[str] | frozenset[str] = frozenset()) -> str:
        """Return the first model that is not resting, or the one that rests the shortest."""
        now = self._clock()
        left = [name for name in self._models if name not in asked]
        return min(left, key=lambda name: max(0.0, self._rested_at[name] - now))

    def _rest(self, name: str, problem: ModelError) -> None:
        seconds = BARRED_SECONDS
        if isinstance(problem, ModelUnavailable):
            seconds = max(REST_SECONDS, problem.retry_after or 0.0)
        self._rested_at[name] = self._clock() + seconds
        self._why[name] = problem

    def _note(self, name: str, request: ModelRequest) -> str:
        """Return the note on a fallback answer: its model, the reason, and the capabilities that it lacks."""
        able = self._models[name].capabilities
        unable = [
            *(["sees no images"] if has_images(request) and not able.images else []),
            *(["reads no PDF"] if has_documents(request) and not able.documents else []),
            *(["uses no tools"] if not able.tools and any(e.capabilities.tools for e in self._models.values()) else []),
        ]
        why = self._why.get(self._preferred)
        # What the service has said for itself stands behind a colon, and is for the log.
        because = f": {why.cause.partition(': ')[0].rstrip('.')}" if why is not None else ""
        left_out = f" It {_listed(unable)}." if unable else ""
        return f"Answered by {name} instead of {self._preferred}{because}.{left_out}"


def _takes_less(able: Capabilities, made_for: Capabilities, request: ModelRequest) -> bool:
    """Return True if the window is smaller than `made_for`'s, or a tool search may be needed and is not supported."""
    may_search = bool(request.tools) and made_for.searches
    return able.context_tokens < made_for.context_tokens or (may_search and not able.searches)


def _most_hopeful(problems: Sequence[ModelError]) -> ModelError:
    """Return the error to report if no model has answered: the last of those that end soonest."""
    passing = [error for error in reversed(problems) if isinstance(error, ModelUnavailable)]
    return min(passing, key=lambda error: error.retry_after or 0.0, default=problems[-1])


def _listed(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


class DiscoveredWindow:
    """A model with the context window that its service reports, called `label` in the log.

    No request waits for the size: the service is asked when the first answer begins, and until it responds the default
    size applies.
    """

    def __init__(self, model: ListsModels, label: str) -> None:
        self._model = model
        self._label = label
        self._window = 0
        self._looks = 0
        self._looking: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model, with the discovered window."""
        capabilities = self._model.capabilities
        return replace(capabilities, context_tokens=self._window) if self._window else capabilities

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events. The window is looked up at most MOST_LOOKS times."""
        if self._window or self._looks == MOST_LOOKS:
            return self._model.stream(request)
        return self._looked_after(request)

    async def _looked_after(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """A server that starts a model with the first question knows no window before the model says something."""
        begun = False
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        self._begin_look()
                    yield event
        except ContextTooLong:
            self._begin_look()
            raise

    def _begin_look(self) -> None:
        if not self._window and self._looks < MOST_LOOKS and (self._looking is None or self._looking.done()):
            self._looks += 1
            self._looking = asyncio.create_task(self._look(), name=f"window of {self._label}")

    async def close(self) -> None:
        """Cancel the lookup and close the connections."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._model.close()

    async def _look(self) -> None:
        """Ask for the size of the window. A failure does not affect the request."""
        try:
            availability = await self._model.look_up()
        except ModelError as problem:
            log.debug("the window of %s is not known: %s", self._label, problem.cause)
        except Exception:
            log.exception("the service of %s could not be asked for its window", self._label)
        else:
            match availability:
                case Available(window=int(window)) if window >= SMALLEST:
                    self._window = window
                    log.info("%s has a window of %d tokens", self._label, window)
                case Available():
                    pass
                case _:
                    self._looks = MOST_LOOKS


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
