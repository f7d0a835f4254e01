"""Deletion of the content of turns as soon as their answers are out, for operators who keep none (RETENTION_DAYS=0).

A crash between the end of a turn and this deletion loses nothing of it: the next process looks for the rows again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bot.errors import DatabaseError
from bot.ports import TurnRetention

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""Time between two deletions, so that turns that end together share one."""
BATCH = 100
FETCH_SECONDS = 300.0
"""Time in which a client of the HTTP API can still read an answer: only the client knows when it has it."""
UNDELIVERED_SECONDS = 86_400.0
"""Time after which an answer is deleted that its platform has never taken."""
WITHOUT_CONTENT_DAYS = 30.0
"""Days until the rows themselves are deleted: without them, a redelivered message would be asked again."""
FINISH_SECONDS = 3.0
REWRITE_JOB = "file without deleted content"
REWRITE_SECONDS = 7 * 86_400.0


class ContentDeletion:
    """Background loop that deletes the content of ended turns."""

    def __init__(self, turn_log: TurnRetention, *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
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
                    is_purged = await self._purge()
            except DatabaseError:
                pass  # logged by the database
            except Exception:  # the next try may succeed, and the turns must go on
                log.exception("content of ended turns not deleted, retry scheduled")
            await self._pause(PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._delivered.wait()

    async def finish(self) -> None:
        """Delete what is due before the process ends. Never raises."""
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
            BATCH, fetch_seconds=FETCH_SECONDS, undelivered_seconds=UNDELIVERED_SECONDS
        ):
            count += deleted
        if count:
            log.debug("deleted the content of %d turns", count)
        return count > 0

    async def _purge(self) -> bool:
        # What was deleted before content was, by this setting, is still in the pages of the file.
        whole = await self._log.try_start_job(REWRITE_JOB, REWRITE_SECONDS)
        return await self._log.purge_files(whole=whole)
