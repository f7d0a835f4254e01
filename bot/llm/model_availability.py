"""Availability and context window of a model, as its service reports them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from bot.domain.completions import Capabilities, ModelEvent, ModelRequest
from bot.errors import ContextTooLong, ModelError
from bot.ports import LanguageModel

log = logging.getLogger(__name__)

MAX_LOOKUPS = 3
SMALLEST_WINDOW = 1_000
"""Tokens. A smaller reported window is ignored."""


@dataclass(frozen=True, slots=True)
class Available:
    """The service has the model. `window` is in tokens, None if not reported.

    `until` is the retirement date as the service writes it, empty if none is announced.
    """

    window: int | None = None
    until: str = ""


@dataclass(frozen=True, slots=True)
class Retired:
    """The service has retired the model."""


@dataclass(frozen=True, slots=True)
class NotListed:
    """The model is not in the service's list; `names` are."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotReported:
    """The service does not report its models. `reply` is its reason, empty if it only has no such list."""

    reply: str = ""


Availability = Available | Retired | NotListed | NotReported


@runtime_checkable
class ListsModels(LanguageModel, Protocol):
    """Language model with a service that lists its models, without a cost in tokens."""

    @property
    def service_name(self) -> str:
        """Display name of the service."""
        ...

    @property
    def tells_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        ...

    async def look_up(self) -> Availability:
        """Ask the service, for some seconds at most. Raises ModelError if it is unreachable or denies access."""
        ...


class DiscoveredWindow:
    """A model with the context window that its service reports, called `label` in the log.

    No request waits for the size: the service is asked when the first answer begins, and until it responds the default
    size applies.
    """

    def __init__(self, model: ListsModels, label: str) -> None:
        self._model = model
        self._label = label
        self._window = 0
        self._lookups = 0
        self._lookup: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the model, with the discovered window."""
        capabilities = self._model.capabilities
        return replace(capabilities, context_tokens=self._window) if self._window else capabilities

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events. The window is looked up at most MAX_LOOKUPS times."""
        if self._window or self._lookups == MAX_LOOKUPS:
            return self._model.stream(request)
        return self._stream_and_look_up(request)

    async def _stream_and_look_up(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream, and look up the context window after the first event: a local server loads the model with the first
        request and does not know the window before.
        """
        begun = False
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if not begun:
                        begun = True
                        self._start_lookup()
                    yield event
        except ContextTooLong:
            self._start_lookup()
            raise

    def _start_lookup(self) -> None:
        if not self._window and self._lookups < MAX_LOOKUPS and (self._lookup is None or self._lookup.done()):
            self._lookups += 1
            self._lookup = asyncio.create_task(self._look_up(), name=f"window of {self._label}")

    async def close(self) -> None:
        """Cancel the lookup and close the connections."""
        if self._lookup is not None:
            self._lookup.cancel()
            await asyncio.gather(self._lookup, return_exceptions=True)
        await self._model.close()

    async def _look_up(self) -> None:
        """Ask for the size of the window. A failure does not affect the request."""
        try:
            availability = await self._model.look_up()
        except ModelError as error:
            log.debug("the window of %s is not known: %s", self._label, error.cause)
        except Exception:
            log.exception("the service of %s could not be asked for its window", self._label)
        else:
            match availability:
                case Available(window=int(window)) if window >= SMALLEST_WINDOW:
                    self._window = window
                    log.info("%s has a window of %d tokens", self._label, window)
                case Available():
                    pass
                case _:
                    self._lookups = MAX_LOOKUPS
