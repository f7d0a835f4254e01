"""So many servers may start at the same moment: more slow one another down until all of them time out.

Shared by all connections of a toolbox. One that takes long makes room for the next, so that silent servers hold up
nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class StartLimiter:
    """Lets `at_once` through, and another for each that has needed more than `seconds`."""

    def __init__(self, at_once: int, seconds: float) -> None:
        self._room = asyncio.Semaphore(at_once)
        self._seconds = seconds

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Callable[[], None]]:
        """Wait for room. It is given back at the end of the block, earlier by calling what the block gets, or after
        the time.
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
