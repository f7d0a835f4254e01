"""Work that is due again and again: done once in its time, by whichever process comes first."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.errors import DatabaseUnavailable
from bot.ports import Quotas, TurnLog, UsageStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
DAY_SECONDS = 86400.0
BATCH = 500


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do every so many seconds, and within them. A crash in the middle skips one round."""

    name: str
    every: float
    do: Callable[[], Awaitable[None]]


class Scheduler:
    """Does the jobs that are due, one after the other, until cancelled."""

    def __init__(
        self,
        turn_log: TurnLog,
        jobs: Sequence[Job],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._jobs = jobs
        self._pause = pause

    async def run(self) -> None:
        """Look what is due, do it, look again."""
        while self._jobs:
            for job in self._jobs:
                await self._do_if_due(job)
            await self._pause(LOOK_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311 - jitter is no secret

    async def _do_if_due(self, job: Job) -> None:
        try:
            if await self._log.try_start_job(job.name, job.every):
                # A job that hangs must not keep the others from being done for ever.
                async with asyncio.timeout(job.every):
                    await job.do()
        except DatabaseUnavailable:
            return  # the database itself says once that it is away
        except Exception:  # one job's failure must not keep the others from being done
            log.exception("the job %r failed", job.name)


def retention(turn_log: TurnLog, days: float) -> Job:
    """Deletes turns that ended more than `days` ago, once an hour, in batches."""

    async def delete() -> None:
        while (deleted := await turn_log.delete_old(days * DAY_SECONDS, BATCH)) > 0:
            log.info("deleted %d turns that ended more than %g days ago", deleted, days)

    return Job("retention", 3600.0, delete)


def usage_retention(usage: UsageStore, days: float) -> Job:
    """Deletes what was counted of models' use more than `days` ago, once an hour, in batches."""

    async def delete() -> None:
        while (deleted := await usage.delete_old(days * DAY_SECONDS, BATCH)) > 0:
            log.info("deleted %d rows of usage that are more than %g days old", deleted, days)

    return Job("usage retention", 3600.0, delete)


def tidying(quotas: Quotas) -> Job:
    """Forgets limits that say nothing any more, once an hour: there is one for each channel ever written in."""

    async def forget() -> None:
        while await quotas.forget_idle(BATCH) > 0:
            pass

    return Job("tidying", 3600.0, forget)
