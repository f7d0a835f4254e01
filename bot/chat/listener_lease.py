"""Lease on work that one process at a time does: receiving from a platform that delivers every event to each
connection, reading missed messages.

One process at a time holds the lease, in the database. It is renewed after a third of its duration; a process that
cannot renew it stops the work before it expires. The lease of a process that is known to have ended is taken over at
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from bot.errors import CountersignError
from bot.ports import Leases

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""A process that dies without releasing its lease is followed by one on another machine after so long."""
SAFE_SHARE = 5 / 6
"""Share of a lease that is used without a renewal: stopping takes a moment."""


class ListenerLease:
    """Lease of the process `holder`. `seconds` is its duration. `task` is for the log: "receiving from Discord".
    `has_ended` returns True for another holder that has certainly ended.
    """

    def __init__(
        self,
        leases: Leases,
        name: str,
        holder: str,
        task: str,
        *,
        seconds: float = LEASE_SECONDS,
        has_ended: Callable[[str], bool] = lambda _holder: False,
    ) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._task = task
        self._seconds = seconds
        self._has_ended = has_ended
        self.is_standby = False
        """True while another process has the lease."""

    async def run_while_held(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work while the lease is held, again after each loss, until cancelled. Return when the work ends; its
        errors are raised. The work is cancelled when the lease is lost.
        """
        while True:
            until = await self._acquire()
            try:
                if await self._run_until_lost(work, until):
                    return
            finally:
                await self._release()

    async def _acquire(self) -> float:
        """Wait for the lease and return its end, in the loop's time."""
        while True:
            try:
                until = await self._acquire_or_renew() or await self._take_over()
            except CountersignError as error:
                log.warning("lease on %s not acquired: %s", self._task, error)
            else:
                if until is not None:
                    self.is_standby = False
                    return until
                self.is_standby = True
            await asyncio.sleep(self._seconds / 3)

    async def _take_over(self) -> float | None:
        """Acquire the lease of a process that has ended, and return its end. Return None if another process has it."""
        holder = (await self._leases.find_holders(self._name)).get(self._name)
        if holder is None:
            return await self._acquire_or_renew()
        if self._has_ended(holder):
            log.info("the process with the lease on %s has ended (%s), this one takes over", self._task, holder)
            await self._leases.release(self._name, holder)
            return await self._acquire_or_renew()
        if not self.is_standby:
            log.info(
                "process %s holds the lease on %s, this one stands by; if that process has ended, the"
                " lease expires in at most %.0f s",
                holder,
                self._task,
                self._seconds,
            )
        return None

    async def _run_until_lost(self, work: Callable[[], Awaitable[None]], until: float) -> bool:
        """Run the work while the lease is renewed. Return True if the work ended by itself."""
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew(until), name=f"{self._task}: lease")
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                return True
            log.warning("lease lost; another process may go on with %s now", self._task)
            return False
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)

    async def _renew(self, until: float) -> None:
        """Renew the lease until that fails."""
        loop = asyncio.get_running_loop()
        while (left := until - loop.time()) > 0:
            await asyncio.sleep(min(self._seconds / 3, left / 2 + 0.01))
            try:
                async with asyncio.timeout_at(until):
                    renewed = await self._acquire_or_renew()
            except (CountersignError, TimeoutError) as error:
                log.warning("lease on %s not renewed, retrying: %s", self._task, error)
                continue
            if renewed is None:
                return
            until = renewed

    async def _acquire_or_renew(self) -> float | None:
        """Return the end of the lease, counted from before the request, or None if another process has it."""
        before = asyncio.get_running_loop().time()
        held = await self._leases.acquire_or_renew(self._name, self._holder, self._seconds)
        return before + self._seconds * SAFE_SHARE if held else None

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self._seconds / 3):
                await self._leases.release(self._name, self._holder)
        except (CountersignError, TimeoutError) as error:
            log.warning("lease on %s not released, it will expire: %s", self._task, error)
