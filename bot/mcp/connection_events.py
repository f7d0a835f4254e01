"""The news about one live connection, on their way to the task that owns it.

Calls, notifications and the transport's end report here, from any task; the owner in `connection` waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from mcp import Client


class ConnectionEvents:
    """A live connection as its users see it. `client` is there once the server has answered.

    `lost`: it is over. `doubted`: a request did not get through, so calls wait until the owner has tried. `stale`: the
    tools may have changed since the owner began to list them. `resting`: nobody needs it, and it is to be closed.
    """

    def __init__(self, settle: float, apart: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.client: Client | None = None
        self.lost = False
        self.doubted = False
        self.stale = False
        self.resting = False
        self._settle = settle
        self._apart = apart
        self._clock = clock
        self._news = asyncio.Event()
        self._listing = False
        self._listed_at = -math.inf
        self._first_told = self._last_told = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Calls may be sent."""
        return self.client is not None and not (self.lost or self.doubted or self.resting)

    @property
    def idle(self) -> bool:
        """The owner waits for news and does nothing else."""
        return not (self._listing or self.is_list_due or self.doubted)

    @property
    def is_list_due(self) -> bool:
        """The tools may have changed, and it is time to list them: the server has said nothing more for a while, or
        does not stop, and it is long enough since they were listed.
        """
        quiet_at = min(self._last_told + self._settle, self._first_told + self._apart)
        return self.stale and self._clock() >= max(quiet_at, self._listed_at + self._apart)

    @property
    def listing(self) -> bool:
        """The tools were asked for, and no answer has come."""
        return self._listing

    def mark_closed(self) -> None:
        """The other side has hung up, or is of no more use."""
        self.lost = True
        self._news.set()

    def mark_suspect(self) -> None:
        """Something did not get through: let the owner try."""
        self.doubted = True
        self._news.set()

    def mark_idle(self) -> None:
        """Nobody has used it for long."""
        self.resting = True
        self._news.set()

    def mark_list_changed(self) -> None:
        """The tools may have changed. The owner hears of it when they are `is_list_due`."""
        self._last_told = self._clock()
        if not self.stale:
            self._first_told = self._last_told
        self.stale = True
        self._watch()

    def list_begins(self) -> None:
        """The owner asks for the tools. A change that is told from now on may be missing in the answer."""
        self._listing = True
        self.stale = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def list_ends(self) -> None:
        """The answer is there, so the connection works."""
        self._listing = self.doubted = False
        self._listed_at = self._clock()
        self._watch()

    def list_fails(self) -> None:
        """No answer has come in time. What was known before may be old, and the connection may be well."""
        self._listing = False
        self.mark_list_changed()

    def interrupt(self) -> None:
        """Let the owner look around for another reason."""
        self._news.set()

    async def wait(self) -> None:
        """Wait until something has happened."""
        await self._news.wait()
        self._news.clear()

    def _watch(self) -> None:
        """Look once in a while whether it is time: each notification would set the clock anew."""
        if self.stale and self._alarm is None and not self._listing:
            self._alarm = asyncio.get_running_loop().call_later(self._settle, self._look)

    def _look(self) -> None:
        self._alarm = None
        if self.is_list_due:
            self._news.set()
        else:
            self._watch()
