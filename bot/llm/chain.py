"""Several language models as one: the first that is well answers.

Put around providers by the composition root. Knows no provider. A model that fails rests for a while, so that not
every question waits for it to fail again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from time import monotonic

from bot.domain.completions import Capabilities, ModelEvent, ModelRequest
from bot.errors import ModelBarred, ModelError, ModelUnavailable
from bot.ports import LanguageModel

log = logging.getLogger(__name__)

REST_SECONDS = 30.0
BARRED_SECONDS = 300.0
"""A wrong key or an empty account is a matter for people."""


class ModelChain:
    """These models by their names, the preferred one first. `clock` is in seconds and never jumps."""

    def __init__(self, models: Mapping[str, LanguageModel], *, clock: Callable[[], float] = monotonic) -> None:
        self._models = dict(models)
        self._clock = clock
        self._rested_at = dict.fromkeys(self._models, 0.0)

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do that would be asked now. What a request holds beyond that, the others read as words."""
        return self._models[self._next()].capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. Where a model fails that has begun to write, whoever reads must begin anew: this raises
        ModelUnavailable with no wait, and is to be asked again.
        """
        asked: set[str] = set()
        while True:
            name, begun = self._next(asked), False
            asked.add(name)
            try:
                async with aclosing(self._models[name].stream(request)) as events:
                    async for event in events:
                        begun = True
                        yield event
            except (ModelUnavailable, ModelBarred) as problem:
                self._rest(name, problem)
                other = self._next(asked) if len(asked) < len(self._models) else ""
                if not other:
                    raise
                log.warning("%s %s is asked instead.", problem.cause, other)
                if begun:
                    raise ModelUnavailable(f"{problem.cause} {other} is asked instead.", retry_after=0.0) from problem
            else:
                return

    async def close(self) -> None:
        """Let go of connections."""
        for model in self._models.values():
            await model.close()

    def _next(self, asked: set[str] | frozenset[str] = frozenset()) -> str:
        """The first that has rested, or the one that will have soonest."""
        now = self._clock()
        left = [name for name in self._models if name not in asked]
        return min(left, key=lambda name: max(0.0, self._rested_at[name] - now))

    def _rest(self, name: str, problem: ModelError) -> None:
        seconds = BARRED_SECONDS
        if isinstance(problem, ModelUnavailable):
            seconds = max(REST_SECONDS, problem.retry_after or 0.0)
        self._rested_at[name] = self._clock() + seconds
