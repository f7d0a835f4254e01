"""Arrivals: messages that are being taken in go before turns, as long as they are many, but not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

MANY = 16
"""Messages at once from which on other work waits. Fewer are taken in in time beside it."""
LONGEST_SECONDS = 10.0
"""Longest time that other work waits, and shortest time for which it then goes on."""


class Arrivals:
    """Count of the messages that are being taken in, for whose end a platform waits. `clock` is monotonic, in
    seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._few = asyncio.Event()
        self._began = -2 * LONGEST_SECONDS

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a message during the block."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if self._count < MANY:
                self._few.set()

    @property
    def go_first(self) -> bool:
        """True if other work has to wait now."""
        if self._count < MANY:
            return False
        now = self._clock()
        if now >= self._began + 2 * LONGEST_SECONDS:
            self._began = now
        return now < self._began + LONGEST_SECONDS

    async def wait(self) -> None:
        """Wait while other work has to."""
        while self.go_first:
            self._few.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._began + LONGEST_SECONDS - self._clock()):
                    await self._few.wait()
