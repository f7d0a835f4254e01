"""Background jobs: the scheduler of periodic ones, of which one process runs each in each period; and the deletion of
the content of turns as soon as their answers are out, for operators who keep none (RETENTION_DAYS=0).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bot.errors import DatabaseError, DatabaseUnavailable
from bot.ports import LocaleStore, Quotas, TurnRetention, UsageStore

log = logging.getLogger(__name__)
POLL_SECONDS = 5.0
DAY_SECONDS = 86400.0
BATCH = 500
PAUSE_SECONDS = 0.5
"""Time between two deletions, so that turns that end together share one."""
_CONTENT_BATCH = 100
FETCH_SECONDS = 300.0
"""Time in which a client of the HTTP API can still read an answer: only the client knows when it has it."""
UNDELIVERED_SECONDS = 86_400.0
"""Time after which an answer is deleted that its platform has never taken."""
WITHOUT_CONTENT_DAYS = 30.0
"""Days until the rows themselves are deleted: without them, a redelivered message would be asked again."""
FINISH_SECONDS = 3.0
REWRITE_JOB = "file without deleted content"
REWRITE_SECONDS = 7 * 86_400.0


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
    message = f"deleted %d turns that ended more than {days:g} days ago"
    return _deletion("retention", partial(turn_log.delete_old, days * DAY_SECONDS), message)


def usage_retention(usage: UsageStore, days: float) -> Job:
    """Return an hourly job that deletes usage of models older than `days`, in batches."""
    message = f"deleted %d rows of usage that are more than {days:g} days old"
    return _deletion("usage retention", partial(usage.delete_old, days * DAY_SECONDS), message)


def locale_retention(locales: LocaleStore, days: float) -> Job:
    """Return an hourly job that deletes languages that clients told more than `days` ago, in batches."""
    return _deletion("languages of users", partial(locales.delete_old, days * DAY_SECONDS))


def quota_cleanup(quotas: Quotas) -> Job:
    """Return an hourly job that deletes unused rate limit state: there is a row for each channel ever written in."""
    return _deletion("tidying", quotas.forget_idle)


def _deletion(name: str, delete: Callable[[int], Awaitable[int]], message: str = "") -> Job:
    async def delete_all() -> None:
        while (count := await delete(BATCH)) > 0:
            if message:
                log.info(message, count)

    return Job(name, 3600.0, delete_all)


class ContentDeletion:
    """Background loop that deletes the content of ended turns. A crash between the end of a turn and this deletion
    loses nothing of it: the next process looks for the rows again.
    """

    def __init__(self, turn_log: TurnRetention, *, pause: Callable[[float], Awaitable[None]]) -> None:
        self._log = turn_log
        self._pause = pause
        self._delivered = asyncio.Event()

    def wake(self) -> None:
        """Look for ended turns now: the answer of one was delivered."""
        self._delivered.set()

    async def run(self) -> None:
        """Delete content until cancelled."""
        is_purged = False
        while True:
            self._delivered.clear()
            try:
                if await self._delete_due():
                    is_purged = False
                if not is_purged:
                    # Content that was deleted before this setting is still in the pages of the file.
                    whole = await self._log.try_start_job(REWRITE_JOB, REWRITE_SECONDS)
                    is_purged = await self._log.purge_files(whole=whole)
            except DatabaseError:
                pass  # logged by the database
            except Exception:  # the next try may succeed, and the turns must go on
                log.exception("content of ended turns not deleted, retry scheduled")
            await self._pause(PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._delivered.wait()

    async def finish(self) -> None:
        """Delete due content before the process ends. Never raises."""
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                await self._delete_due()
                await self._log.purge_files(whole=False)
        except (DatabaseError, TimeoutError) as error:
            log.warning("content of ended turns not deleted before the end: %s", error or "it took too long")

    async def _delete_due(self) -> bool:
        """Return True if anything was deleted."""
        count = 0
        while deleted := await self._log.delete_content(
            _CONTENT_BATCH, fetch_seconds=FETCH_SECONDS, undelivered_seconds=UNDELIVERED_SECONDS
        ):
            count += deleted
        if count:
            log.debug("deleted the content of %d turns", count)
        return count > 0
