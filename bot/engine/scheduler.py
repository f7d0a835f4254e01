"""Scheduler of periodic jobs. In each period one process runs each job."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.errors import DatabaseUnavailable
from bot.ports import LocaleStore, Quotas, TurnRetention, UsageStore

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
DAY_SECONDS = 86400.0
BATCH = 500


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs every `every` seconds, with the same time limit. A crash skips one period."""

    name: str
    every: float
    do: Callable[[], Awaitable[None]]


class Scheduler:
    """Background loop that runs due jobs, one at a time."""

    def __init__(
        self,
        turn_log: TurnRetention,
        jobs: Sequence[Job],
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = turn_log
        self._jobs = jobs
        self._pause = pause

    async def run(self) -> None:
        """Poll and run due jobs until cancelled."""
        while self._jobs:
            for job in self._jobs:
                await self._run_if_due(job)
            await self._pause(POLL_SECONDS * random.uniform(0.9, 1.1))  # noqa: S311 - jitter is no secret

    async def _run_if_due(self, job: Job) -> None:
        try:
            if await self._log.try_start_job(job.name, job.every):
                # A job that hangs must not block the others.
                async with asyncio.timeout(job.every):
                    await job.do()
        except DatabaseUnavailable:
            return  # logged by the database
        except Exception:  # a failed job must not stop the others
            log.exception("job %r failed", job.name)


def retention(turn_log: TurnRetention, days: float) -> Job:
    """Return an hourly job that deletes turns that ended more than `days` ago, in batches."""

    async def delete() -> None:
        while (deleted := await turn_log.delete_old(days * DAY_SECONDS, BATCH)) > 0:
            log.info("deleted %d turns that ended more than %g days ago", deleted, days)

    return Job("retention", 3600.0, delete)


def usage_retention(usage: UsageStore, days: float) -> Job:
    """Return an hourly job that deletes usage of models older than `days`, in batches."""

    async def delete() -> None:
        while (deleted := await usage.delete_old(days * DAY_SECONDS, BATCH)) > 0:
            log.info("deleted %d rows of usage that are more than %g days old", deleted, days)

    return Job("usage retention", 3600.0, delete)


def locale_retention(locales: LocaleStore, days: float) -> Job:
    """Return an hourly job that deletes languages that clients told more than `days` ago, in batches."""

    async def delete() -> None:
        while await locales.delete_old(days * DAY_SECONDS, BATCH) > 0:
            pass

    return Job("languages of users", 3600.0, delete)


def quota_cleanup(quotas: Quotas) -> Job:
    """Return an hourly job that deletes unused rate limit state: there is a row for each channel ever written in."""

    async def forget() -> None:
        while await quotas.forget_idle(BATCH) > 0:
            pass

    return Job("tidying", 3600.0, forget)
