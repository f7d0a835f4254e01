"""Limit of servers that start at the same time, so that they do not time out together. Shared by all connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class StartLimiter:
    """Limiter of `at_once` slots. A slot is released after `seconds` at the latest, so that silent servers block no
    others.
    """

    def __init__(self, at_once: int, seconds: float) -> None:
        self._room = asyncio.Semaphore(at_once)
        self._seconds = seconds

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Callable[[], None]]:
        """Wait for a slot. It is released at the end of the block, by calling the yielded function, or after the
        time.
        """
        await self._room.acquire()
        taken = True

        def give_back() -> None:
            nonlocal taken
            if taken:
                taken = False
                self._room.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, give_back)
        try:
            yield give_back
        finally:
            timer.cancel()
            give_back()
