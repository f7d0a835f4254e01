"""Leases on receiving: one process at a time receives from a platform that delivers every event to each connection, and
reads missed messages.

A lease is a row of the database. It is renewed after a third of its duration; a process that cannot renew it stops the
work before it expires. The lease of a process that is known to have ended is taken over at once.

The shards of a platform that splits its events are shared out fairly among the processes. Each process has a lease that
says that it is there, and takes its share of the shards; one with more than its share gives shards back. All of them
use the number of shards of the process that came first, because two numbers at a time would deliver events twice. A
platform without shards has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

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


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts of a platform's events, numbered from 0."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"shard {self.number + 1} of {self.count}"


ONLY_SHARD = Shard(0, 1)


def share_of(process: str, shards: int, processes: Collection[str], holders: Mapping[int, str]) -> frozenset[int]:
    """Return the shards that a process should hold, among the living `processes`, of which it is one. Shards change
    their holder only if that makes the shares more equal. A process without a share waits for a shard of another one.
    """
    held = {other: [number for number in range(shards) if holders.get(number) == other] for other in processes}
    ranked = sorted(held, key=lambda other: (-len(held[other]), other))
    least, more = divmod(shards, len(ranked))
    sizes = {other: least + (rank < more) for rank, other in enumerate(ranked)}
    kept = {other: held[other][: sizes[other]] for other in ranked}
    free = iter(sorted(set(range(shards)).difference(*kept.values())))
    shares = {other: [*kept[other], *islice(free, sizes[other] - len(kept[other]))] for other in ranked}
    return frozenset(shares[process] or [ranked.index(process) % shards])


class ShardLeases:
    """Leases of the process `holder` on its share of the shards. Their names begin with `name`, `seconds` is their
    duration, `platform` is for the log. `recommended` is the number of shards if no other process has set one.
    `has_ended` returns True for another process that has certainly ended.
    """

    def __init__(
        self,
        leases: Leases,
        name: str,
        holder: str,
        platform: str,
        *,
        seconds: float,
        recommended: int,
        has_ended: Callable[[str], bool] = lambda _holder: False,
    ) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._platform = platform
        self._seconds = seconds
        self._recommended = recommended
        self._has_ended = has_ended
        self._presence = ""
        self._count = ""
        self._is_alone = False
        self._shard_leases: dict[Shard, ListenerLease] = {}
        self._tasks: dict[Shard, asyncio.Task[None]] = {}

    @property
    def is_standby(self) -> bool:
        """True while other processes have the leases of all shards that this one would receive."""
        return bool(self._shard_leases) and all(lease.is_standby for lease in self._shard_leases.values())

    async def run_while_held(self, work: Callable[[Shard], Awaitable[None]]) -> None:
        """Run the work of each shard while its lease is held, until cancelled. Return when the work of a shard ends;
        its errors are raised. The work is cancelled when the lease is lost, or when another process is to have it.
        """
        try:
            while True:
                try:
                    held = await self._leases.find_holders(self._name)
                    await self._announce(held)
                    shards = await self._agree_on_count(held)
                    present = {holder for name, holder in held.items() if name.startswith(self._presence_name(""))}
                    others = {holder for holder in present - {self._holder} if not self._has_ended(holder)}
                    self._is_alone = not others
                    numbers = {
                        number: held[name] for number in range(shards) if (name := self._lease_name(number)) in held
                    }
                    share = share_of(self._holder, shards, others | {self._holder}, numbers)
                    await self._adjust(frozenset(Shard(number, shards) for number in share), work)
                except CountersignError as error:
                    log.warning("shares of %s not determined, retrying: %s", self._platform, error)
                if not self._tasks:
                    await asyncio.sleep(self._seconds / 3)
                    continue
                ended, _ = await asyncio.wait(
                    self._tasks.values(), timeout=self._seconds / 3, return_when=asyncio.FIRST_COMPLETED
                )
                for task in ended:
                    task.result()
                if ended:
                    return
        finally:
            await self._stop(self._tasks)
            await self._leave()

    async def _announce(self, held: Mapping[str, str]) -> None:
        """Hold a lease that says that this process is there: the first free one, so that their number is limited."""
        if self._presence and await self._acquire(self._presence, self._holder):
            return
        free = (name for number in count() if (name := self._presence_name(str(number))) not in held)
        self._presence = next(free)
        while not await self._acquire(self._presence, self._holder):
            self._presence = next(free)

    async def _agree_on_count(self, held: Mapping[str, str]) -> int:
        """Return the number of shards, which is the holder of a lease that all processes renew."""
        name = self._count_name
        self._count = held.get(name, self._count or str(self._recommended))
        if not await self._acquire(name, self._count):
            self._count = (await self._leases.find_holders(name)).get(name, self._count)
        return int(self._count)

    async def _acquire(self, name: str, holder: str) -> bool:
        return await self._leases.acquire_or_renew(name, holder, self._seconds)

    async def _adjust(self, share: frozenset[Shard], work: Callable[[Shard], Awaitable[None]]) -> None:
        """Stop the work of shards outside the share before that of new ones begins."""
        await self._stop(self._tasks.keys() - share)
        for shard in sorted(share - self._tasks.keys(), key=lambda shard: shard.number):
            task = f"receiving from {self._platform}" + ("" if shard == ONLY_SHARD else f" ({shard})")
            name, seconds = self._lease_name(shard.number), self._seconds
            lease = ListenerLease(self._leases, name, self._holder, task, seconds=seconds, has_ended=self._has_ended)
            self._shard_leases[shard] = lease
            self._tasks[shard] = asyncio.create_task(
                lease.run_while_held(partial(work, shard)), name=f"{self._platform}: {shard}"
            )

    async def _stop(self, shards: Collection[Shard]) -> None:
        running = {shard: task for shard in shards if not (task := self._tasks[shard]).done()}
        for task in running.values():
            if not task.cancelling():  # a second cancellation would end the release of the lease
                task.cancel()
        if running:
            await asyncio.wait(running.values())
        for shard, task in running.items():
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("%s: %s failed while it was stopped: %s", self._platform, shard, error)
        for shard in list(shards):
            del self._tasks[shard], self._shard_leases[shard]

    async def _leave(self) -> None:
        """Release the lease that says that this process is there, and the number of shards with the last process."""
        try:
            async with asyncio.timeout(self._seconds / 3):
                if self._presence:
                    await self._leases.release(self._presence, self._holder)
                if self._is_alone:
                    await self._leases.release(self._count_name, self._count)
        except (CountersignError, TimeoutError) as error:
            log.warning("presence of this process for %s not released, it will expire: %s", self._platform, error)

    @property
    def _count_name(self) -> str:
        return f"{self._name}:count"

    def _lease_name(self, number: int) -> str:
        return f"{self._name}:{number}" if number else self._name

    def _presence_name(self, number: str) -> str:
        return f"{self._name}:process:{number}"
