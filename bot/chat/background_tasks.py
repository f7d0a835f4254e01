"""Work after an acknowledgement: background tasks, per-user limits, and retries while a platform is unavailable.

Background tasks are limited in number; their owner waits for them at shutdown. Per-user limits are of concurrent work
(`PerUserLimit`), and of calls in a period (`PerUserRate`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from bot.errors import CountersignError, DeliveryFailed
from bot.i18n import ngettext

log = logging.getLogger(__name__)

T = TypeVar("T")

GOODBYE_SECONDS = 3.0
MOST = 500
"""More than that at once is no longer a workspace at work."""
MOST_PER_USER = 10
NOTICE_SECONDS = 5.0
"""Between two notices to one user about messages that were not taken."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between attempts while a platform is unavailable."""

Send = Callable[[str], Coroutine[Any, Any, None]]
"""A coroutine that shows a text to one user."""


class PerUserLimit:
    """Concurrency limit: at most `most` units of work at a time for each user. Call `release` for each acquired one in
    any case.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: dict[str, int] = {}

    def acquire(self, user: str) -> bool:
        """Count one more. Return False, with nothing counted, if the user has `most` under way."""
        count = self._under_way.get(user, 0)
        if count >= self._most:
            return False
        self._under_way[user] = count + 1
        return True

    def release(self, user: str) -> None:
        """Count one less."""
        count = self._under_way[user] - 1
        if count:
            self._under_way[user] = count
        else:
            del self._under_way[user]


class BackgroundTasks:
    """Background tasks, at most `most` at once and `most_per_user` of one user."""

    def __init__(
        self, most: int = MOST, most_per_user: int = MOST_PER_USER, notice_seconds: float = NOTICE_SECONDS
    ) -> None:
        self._most = most
        self._notice_seconds = notice_seconds
        self._notices: dict[str, tuple[int, str, Send]] = {}
        self._users = PerUserLimit(most_per_user)
        self._limit_notices = PerUserLimit(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> bool:
        """Start a task. Return False, with nothing started, at the limit of all tasks."""
        if len(self._tasks) >= self._most:
            work.close()
            log.warning("background task limit reached, dropped %s", name)
            return False
        self._run(work, name)
        return True

    def start_for(
        self,
        user: str,
        work: Coroutine[Any, Any, None],
        name: str,
        on_limit: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> bool:
        """Start a task for a user. Return False, with nothing started, at the limit of the user or of all users.
        `on_limit` notifies a user over the limit, one message at a time.
        """
        if not self._users.acquire(user):
            work.close()
            log.info("background task limit of a user reached, dropped %s", name)
            if on_limit is not None and len(self._tasks) < self._most and self._limit_notices.acquire(user):
                telling = self._run(on_limit(), f"{name}, over the limit")
                telling.add_done_callback(lambda _: self._limit_notices.release(user))
            return False
        if len(self._tasks) >= self._most:
            self._users.release(user)
            return self.start(work, name)
        # Not in a `finally` of the work: one that is cancelled before its first step has none.
        self._run(work, name).add_done_callback(lambda _: self._users.release(user))
        return True

    def send_notice(self, user: str, reason: str, send: Send) -> None:
        """Tell a user that a message was not taken. A user reads one notice in `notice_seconds`; the messages that are
        rejected meanwhile are counted in the next one.
        """
        waiting = self._notices.get(user)
        self._notices[user] = (1 if waiting is None else waiting[0] + 1, reason, send)
        if waiting is None:
            self._notify(user)

    def _notify(self, user: str) -> None:
        count, reason, send = self._notices.get(user, (0, "", None))
        if not count or send is None:
            self._notices.pop(user, None)
            return
        if self._send(count, reason, send):
            self._notices[user] = (0, reason, send)
        asyncio.get_running_loop().call_later(self._notice_seconds, self._notify, user)

    def _send(self, count: int, reason: str, send: Send) -> bool:
        """Send the reason for the last of the messages of one user that were not taken, with the number of others."""
        missed = ngettext(
            "{n} other message of yours was not taken either.",
            "{n} other messages of yours were not taken either.",
            count - 1,
        )
        text = f"{reason} {missed}" if count > 1 else str(reason)
        return self.start(send(text), "notice of a message that was not taken")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work
            except CountersignError as error:
                log.warning("%s: %s", name, error)
            except Exception:
                log.exception("%s failed", name)

        task = asyncio.create_task(run(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # One that was cancelled before its first step never awaited it.
        task.add_done_callback(lambda _: work.close())
        return task

    async def close(self) -> None:
        """Wait for running tasks and cancel those that do not end. Pending notices are sent now."""
        waiting, self._notices = self._notices, {}
        for notice in waiting.values():
            if notice[0]:
                self._send(*notice)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=GOODBYE_SECONDS)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def wait_idle(self) -> None:
        """Wait until no task is running."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


async def retry_until_available(call: Callable[[], Awaitable[T]], service: str) -> T:
    """Return the platform's response, retrying without end while it is unavailable. The pause between attempts is the
    platform's `retry_after`, or doubles up to LONGEST_PAUSE seconds. Raises DeliveryFailed for permanent errors.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return await call()
        except DeliveryFailed as failure:
            if failure.permanent:
                raise
            log.warning("%s cannot be reached yet: %s", service, failure)
            await asyncio.sleep(failure.retry_after if failure.retry_after is not None else pause)
            pause = min(2 * pause, LONGEST_PAUSE)
