"""Cache of values that a platform is asked for: an expiry, a maximum size, and one request for concurrent lookups."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

TTL_SECONDS = 300.0
MOST_ENTRIES = 2000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Caches the latest values by key for TTL_SECONDS."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._locks: dict[K, asyncio.Lock] = {}
        self._cleared = 0

    async def get(self, key: K, request: Callable[[], Awaitable[V]], *, max_age: float = TTL_SECONDS) -> V:
        """Return the cached value of at most `max_age` seconds, or the result of `request`. Raises the errors of
        `request`, which are not cached.
        """
        entry = self._fresh(key, max_age)
        if entry is not None:
            return entry[1]
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # concurrent lookups of a key wait for the first one's value
                entry = self._fresh(key, max_age)
                return entry[1] if entry is not None else await self.refresh(key, request)
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    async def refresh(self, key: K, request: Callable[[], Awaitable[V]]) -> V:
        """Return the result of `request`, and cache it. Raises the errors of `request`."""
        cleared, asked_at = self._cleared, self._clock()
        value = await request()
        if cleared == self._cleared:
            self._put(key, value, asked_at)
        return value

    def peek(self, key: K) -> V | None:
        """Return the cached value of any age, or None."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None else None

    def put(self, key: K, value: V) -> None:
        """Cache a value."""
        self._put(key, value, self._clock())

    def clear(self) -> None:
        """Forget all values, also those of the requests under way."""
        self._cleared += 1
        self._entries.clear()

    def _put(self, key: K, value: V, at: float) -> None:
        self._entries[key] = (at, value)
        self._entries.move_to_end(key)
        while len(self._entries) > MOST_ENTRIES:
            self._entries.popitem(last=False)

    def _fresh(self, key: K, max_age: float) -> tuple[float, V] | None:
        entry = self._entries.get(key)
        return entry if entry is not None and self._clock() - entry[0] < max_age else None
