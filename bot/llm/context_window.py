"""A language model with the context window that its service reports.

The composition root wraps a provider with it if the settings do not name the size of the window. No request waits for
the size: the service is asked when the first answer begins, and until it responds the default size applies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from bot.domain.completions import Capabilities, ModelEvent, ModelRequest
from bot.errors import ContextTooLong, ModelError
from bot.llm.model_availability import Available, ListsModels

log = logging.getLogger(__name__)

MOST_LOOKS = 3
SMALLEST = 1_000
"""Tokens. A smaller reported window is ignored."""


class DiscoveredWindow:
    """Another model, of a service that may be asked, called `label` in the log."""

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
            standing = await self._model.look_up()
        except ModelError as problem:
            log.debug("the window of %s is not known: %s", self._label, problem.cause)
        except Exception:
            log.exception("the service of %s could not be asked for its window", self._label)
        else:
            match standing:
                case Available(window=int(window)) if window >= SMALLEST:
                    self._window = window
                    log.info("%s has a window of %d tokens", self._label, window)
                case Available():
                    pass
                case _:
                    self._looks = MOST_LOOKS
