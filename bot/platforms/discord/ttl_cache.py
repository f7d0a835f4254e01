"""Cache with expiry; concurrent lookups of one key share a request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

KEPT_SECONDS = 300.0
REMEMBERED = 2000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Caches the latest values by key for KEPT_SECONDS."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Lock] = {}

    async def get(self, about: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the cached value of the last five minutes, or a new one. Raises the errors of `ask`, which are not
        cached.
        """
        kept = self._fresh(about)
        if kept is not None:
            return kept[1]
        lock = self._asking.setdefault(about, asyncio.Lock())
        try:
            async with lock:  # whoever comes meanwhile needs no answer of their own
                kept = self._fresh(about)
                return kept[1] if kept is not None else await self.refresh(about, ask)
        finally:
            if not lock.locked():
                self._asking.pop(about, None)

    async def refresh(self, about: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return a new value and cache it. Raises the errors of `ask`."""
        answer = await ask()
        self.put(about, answer)
        return answer

    def peek(self, about: K) -> V | None:
        """Return the cached value of any age, or None."""
        kept = self._kept.get(about)
        return kept[1] if kept is not None else None

    def put(self, about: K, answer: V) -> None:
        """Cache a value."""
        self._kept[about] = (self._clock(), answer)
        self._kept.move_to_end(about)
        while len(self._kept) > REMEMBERED:
            self._kept.popitem(last=False)

    def _fresh(self, about: K) -> tuple[float, V] | None:
        kept = self._kept.get(about)
        return kept if kept is not None and self._clock() - kept[0] < KEPT_SECONDS else None
