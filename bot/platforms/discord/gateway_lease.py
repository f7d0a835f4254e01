"""The right to hold the gateway: of all processes with the bot's token one at a time, by a lease in the database.

Discord would let several connect, and deliver everything to each of them. The lease is renewed every third of its time;
whoever cannot renew it stops before another can have it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bot.errors import CountersignError
from bot.ports import Leases

log = logging.getLogger(__name__)

SECONDS = 30.0
"""A process that dies without a word is followed by another after so long."""
SAFE = 5 / 6
"""That much of a lease is used without a renewal: letting go takes a moment."""


class GatewayLease:
    """One process's part in taking turns. `seconds` is how long the lease is."""

    def __init__(self, leases: Leases, name: str, holder: str, *, seconds: float) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._seconds = seconds
        self.stands_by = False
        """Another process has it, and this one waits."""

    async def run_while_held(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the right, and do the work while it lasts; again and again, until cancelled. Work that ends, ends
        this; what it raises is raised. Work that is under way when the right is lost is cancelled at once.
        """
        while True:
            until = await self._taken()
            try:
                if await self._worked(work, until):
                    return
            finally:
                await self._release()

    async def _taken(self) -> float:
        """Wait until the right is ours; until when, by the loop's clock."""
        while True:
            try:
                until = await self._hold()
            except CountersignError as error:
                log.warning("the right to receive from Discord cannot be asked for: %s", error)
            else:
                if until is not None:
                    self.stands_by = False
                    return until
                if not self.stands_by:
                    log.info("another process receives from Discord; this one stands by")
                    self.stands_by = True
            await asyncio.sleep(self._seconds / 3)

    async def _worked(self, work: Callable[[], Awaitable[None]], until: float) -> bool:
        """Do the work while the right can be renewed; whether it has ended by itself."""
        working = asyncio.ensure_future(work())
        keeping = asyncio.create_task(self._kept(until), name="discord: lease")
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                return True
            log.warning("another process may receive from Discord now; this one lets go")
            return False
        finally:
            for task in (working, keeping):
                task.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)

    async def _kept(self, until: float) -> None:
        """Renew the right until that fails."""
        loop = asyncio.get_running_loop()
        while (left := until - loop.time()) > 0:
            await asyncio.sleep(min(self._seconds / 3, left / 2 + 0.01))
            try:
                async with asyncio.timeout_at(until):
                    renewed = await self._hold()
            except (CountersignError, TimeoutError) as error:
                log.warning("the right to receive from Discord could not be renewed yet: %s", error)
                continue
            if renewed is None:
                return
            until = renewed

    async def _hold(self) -> float | None:
        """Take or renew: until when, counted from before the question; None if another has it."""
        asked_at = asyncio.get_running_loop().time()
        held = await self._leases.acquire_or_renew(self._name, self._holder, self._seconds)
        return asked_at + self._seconds * SAFE if held else None

    async def _release(self) -> None:
        """Let another have it at once, whatever ends this."""
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._leases.release(self._name, self._holder)
        except (CountersignError, TimeoutError) as error:
            log.warning("the right to receive from Discord runs out by itself: %s", error)
