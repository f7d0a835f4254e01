"""The news about one live connection, on their way to the task that owns it.

Calls, notifications and the transport's end report here, from any task; the owner in `connection` waits.
"""

from __future__ import annotations

import asyncio

from mcp import Client


class Line:
    """A live connection as its users see it.

    `lost`: it is over. `doubted`: a request did not get through, so calls wait until the owner has tried. `stale`: the
    tools may have changed.
    """

    def __init__(self, settle: float) -> None:
        self.client: Client | None = None
        self.lost = False
        self.doubted = False
        self.stale = False
        self._settle = settle
        self._news = asyncio.Event()
        self._listed_at = 0.0

    @property
    def usable(self) -> bool:
        """Calls may be sent."""
        return self.client is not None and not self.lost and not self.doubted

    @property
    def idle(self) -> bool:
        """The owner has nothing to do but wait."""
        return not (self.stale or self.doubted)

    def lose(self) -> None:
        """The other side has hung up, or is of no more use."""
        self.lost = True
        self._news.set()

    def doubt(self) -> None:
        """Something did not get through: let the owner try."""
        self.doubted = True
        self._news.set()

    def mark_stale(self) -> None:
        """The tools may have changed. A server that says so all the time is asked once per `settle` seconds."""
        self.stale = True
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._listed_at + self._settle, loop.time()), self._news.set)

    def listed(self) -> None:
        """The tools are fresh and the connection works."""
        self.stale = self.doubted = False
        self._listed_at = asyncio.get_running_loop().time()

    def interrupt(self) -> None:
        """Let the owner look around for another reason."""
        self._news.set()

    async def news(self) -> None:
        """Wait until something has happened."""
        await self._news.wait()
        self._news.clear()
