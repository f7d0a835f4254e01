"""Lock per key, first come first served. Different keys do not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLock:
    """Lock by key: one holder at a time for each key, in order of arrival."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def acquire(self, place: str) -> AsyncIterator[None]:
        """Wait for one's turn in a place, and keep it for the block."""
        lock, inside = self._places.get(place) or (asyncio.Lock(), 0)
        self._places[place] = (lock, inside + 1)
        try:
            async with lock:
                yield
        finally:
            _, inside = self._places[place]
            if inside == 1:
                del self._places[place]
            else:
                self._places[place] = (lock, inside - 1)
