"""The time of a fake platform: real time that a test can push forward."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Unix time in seconds. It runs with the real one until `stop`; `advance` pushes it forward at once."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._stopped_at: float | None = None
        self._moved = asyncio.Event()

    def now(self) -> float:
        """Return the time, in seconds since 1970."""
        return (time.time() if self._stopped_at is None else self._stopped_at) + self._ahead

    def stop(self) -> None:
        """Let no time pass from here on but by `advance`."""
        if self._stopped_at is None:
            self._stopped_at = time.time()

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass at once, and wake the waiters for times until then."""
        self._ahead += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def reach(self, moment: float) -> None:
        """Wait until the time is `moment`."""
        while (left := moment - self.now()) > 0:
            moved = self._moved
            try:
                async with asyncio.timeout(left if self._stopped_at is None else None):
                    await moved.wait()
            except TimeoutError:
                continue

    async def reach_or(self, moment: float, event: asyncio.Event) -> None:
        """Wait until the time is `moment`, or until something has happened before."""
        timer, happened = asyncio.ensure_future(self.reach(moment)), asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((timer, happened), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            happened.cancel()
            await asyncio.gather(timer, happened, return_exceptions=True)
