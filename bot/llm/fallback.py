"""A language model made of several: if one fails, the next one answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import monotonic

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest
from bot.errors import ModelBarred, ModelError, ModelUnavailable, SmallerWindow
from bot.llm.request_adaptation import has_documents, has_images
from bot.ports import LanguageModel

log = logging.getLogger(__name__)

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
        self._rests_until = dict.fromkeys(self._models, 0.0)
        self._last_errors: dict[str, ModelError] = {}

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
                            self._rests_until[name] = 0.0
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
        return min(left, key=lambda name: max(0.0, self._rests_until[name] - now))

    def _rest(self, name: str, problem: ModelError) -> None:
        seconds = BARRED_SECONDS
        if isinstance(problem, ModelUnavailable):
            seconds = max(REST_SECONDS, problem.retry_after or 0.0)
        self._rests_until[name] = self._clock() + seconds
        self._last_errors[name] = problem

    def _note(self, name: str, request: ModelRequest) -> str:
        """Return the note on a fallback answer: its model, the reason, and the capabilities that it lacks."""
        able = self._models[name].capabilities
        others_use_tools = any(model.capabilities.tools for model in self._models.values())
        unable = [
            *(["sees no images"] if has_images(request) and not able.images else []),
            *(["reads no PDF"] if has_documents(request) and not able.documents else []),
            *(["uses no tools"] if others_use_tools and not able.tools else []),
        ]
        error = self._last_errors.get(self._preferred)
        # The service's own text, after the colon, is only for the log.
        because = f": {error.cause.partition(': ')[0].rstrip('.')}" if error is not None else ""
        left_out = f" It {_unable_text(unable)}." if unable else ""
        return f"Answered by {name} instead of {self._preferred}{because}.{left_out}"


def _takes_less(able: Capabilities, made_for: Capabilities, request: ModelRequest) -> bool:
    """Return True if the window is smaller than `made_for`'s, or a tool search may be needed and is not supported."""
    may_search = bool(request.tools) and made_for.searches
    return able.context_tokens < made_for.context_tokens or (may_search and not able.searches)


def _most_hopeful(problems: Sequence[ModelError]) -> ModelError:
    """Return the error to report if no model has answered: the last of those that end soonest."""
    passing = [error for error in reversed(problems) if isinstance(error, ModelUnavailable)]
    return min(passing, key=lambda error: error.retry_after or 0.0, default=problems[-1])


def _unable_text(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
