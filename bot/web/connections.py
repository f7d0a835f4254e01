"""Connections that take no more than their share: of time, and of what the whole process may hold open.

Called by `bot.web.server`. A connection that asks nothing costs a file, and when there are none left, the database and
the platforms get none either: whoever only connects, sends half a request or reads no answer is cut off. Knows no
route.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)

MOST = 2_000
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def _most() -> int:
    """Never more than half of what the system lets the process open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, soft // 2)


class Connection(H11Protocol):
    """One connection. Within `asking_seconds` it has to ask something whole, but for the body, which is read by others
    in their own time; and it is left to itself if it takes nothing of its answer for `stalled_seconds`. One more than
    `most` is told to come again. A connection between two requests is uvicorn's to end.
    """

    asking_seconds: ClassVar = 10.0
    stalled_seconds: ClassVar = 60.0
    most: ClassVar = _most()

    _asking: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            log.log(
                logging.WARNING if len(self.connections) == self.most + 1 else logging.DEBUG, "too many connections"
            )
            transport.write(_BUSY)
            transport.close()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Something has come: a piece of a request, or several requests."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_wait()
        elif self._asking is None:
            self._wait()

    def pause_writing(self) -> None:
        """The other side takes nothing more for now."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        self._end_stall()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._end_wait()
        self._end_stall()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._asking = self.loop.call_later(self.asking_seconds, self.transport.abort)

    def _end_wait(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
