"""What is done after an acknowledgement: tasks with an owner, who lets them finish before leaving, within a limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from bot.errors import CountersignError

log = logging.getLogger(__name__)

GOODBYE_SECONDS = 3.0
MOST = 500
"""More than that at once is no longer a workspace at work."""


class Errands:
    """Runs things that nobody waits for, `most` at once."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, errand: Coroutine[Any, Any, None], name: str) -> bool:
        """Begin; False, with nothing begun, if too much is going on already."""
        if len(self._tasks) >= self._most:
            errand.close()
            log.warning("too much is going on: %s was left out", name)
            return False
        task = asyncio.create_task(_told(errand, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Let what is under way finish, and end what does not."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=GOODBYE_SECONDS)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def done(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))


async def _told(errand: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await errand
    except CountersignError as error:
        log.warning("%s: %s", name, error)
    except Exception:
        log.exception("%s failed", name)
