"""Events of one live connection for the task that owns it.

Calls, notifications and the transport report here from any task; the owner in `connection` waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from mcp import Client


class ConnectionEvents:
    """State and events of a live connection. `client` is set after the server has answered.

    `lost`: the connection is closed. `suspect`: a request failed, so calls wait for a ping. `stale`: the tools may have
    changed since the last listing began. `idle_closing`: the connection is idle and is to be closed.
    """

    def __init__(self, settle: float, apart: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.client: Client | None = None
        self.lost = False
        self.suspect = False
        self.stale = False
        self.idle_closing = False
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
        """True if calls may be sent."""
        return self.client is not None and not (self.lost or self.suspect or self.idle_closing)

    @property
    def idle(self) -> bool:
        """True if the owner only waits for events."""
        return not (self._listing or self.is_list_due or self.suspect)

    @property
    def is_list_due(self) -> bool:
        """True if the tools may have changed and it is time to list them.

        Changes are collected until the server is quiet for `settle` seconds, at most for `apart` seconds. Two listings
        are at least `apart` seconds apart.
        """
        quiet_at = min(self._last_told + self._settle, self._first_told + self._apart)
        return self.stale and self._clock() >= max(quiet_at, self._listed_at + self._apart)

    @property
    def listing(self) -> bool:
        """True while a listing of the tools is running."""
        return self._listing

    def mark_closed(self) -> None:
        """Record that the connection is closed or unusable."""
        self.lost = True
        self._news.set()

    def mark_suspect(self) -> None:
        """Record that a request failed, so that the owner sends a ping."""
        self.suspect = True
        self._news.set()

    def mark_idle(self) -> None:
        """Record that the connection is idle."""
        self.idle_closing = True
        self._news.set()

    def mark_list_changed(self) -> None:
        """Record that the tools may have changed. The owner is woken when `is_list_due`."""
        self._last_told = self._clock()
        if not self.stale:
            self._first_told = self._last_told
        self.stale = True
        self._watch()

    def listing_started(self) -> None:
        """Record the start of a listing. Its response may lack changes from now on."""
        self._listing = True
        self.stale = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def listing_finished(self) -> None:
        """Record a completed listing, which also shows that the connection works."""
        self._listing = self.suspect = False
        self._listed_at = self._clock()
        self._watch()

    def listing_failed(self) -> None:
        """Record a listing without a response in time. The cached tools may be outdated."""
        self._listing = False
        self.mark_list_changed()

    def interrupt(self) -> None:
        """Wake the owner for another reason."""
        self._news.set()

    async def wait(self) -> None:
        """Wait for the next event."""
        await self._news.wait()
        self._news.clear()

    def _watch(self) -> None:
        """Poll `is_list_due`, because a timer for each notification would restart the wait."""
        if self.stale and self._alarm is None and not self._listing:
            self._alarm = asyncio.get_running_loop().call_later(self._settle, self._look)

    def _look(self) -> None:
        self._alarm = None
        if self.is_list_due:
            self._news.set()
        else:
            self._watch()
