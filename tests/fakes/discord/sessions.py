"""Connections to the gateway, and the sessions that outlive them."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.discord.refusals import Json


@dataclass(eq=False)
class Connection:
    """One websocket. `number` counts from 1. `muted` discards outgoing payloads, like a network with one direction
    broken.

    `heard` holds the app's payloads, without its token.
    """

    number: int
    socket: web.WebSocketResponse
    request: web.BaseRequest
    session: Session | None = None
    muted: bool = False
    closed_by_us: bool = False
    heard: list[Json] = field(default_factory=list)
    sends: deque[float] = field(default_factory=deque)
    _outbox: asyncio.Queue[Json] = field(default_factory=asyncio.Queue)

    def put(self, op: int, data: Any, *, seq: int | None = None, event: str | None = None) -> None:
        """Send a payload, in order, unless muted."""
        if not self.muted:
            self._outbox.put_nowait({"op": op, "d": data, "s": seq, "t": event})

    async def write(self) -> None:
        """Send queued messages until cancelled or the socket is gone, compressed with zlib on request."""
        packed = zlib.compressobj() if self.request.query.get("compress") == "zlib-stream" else None
        while True:
            text = json.dumps(await self._outbox.get())
            try:
                if packed is None:
                    await self.socket.send_str(text)
                else:
                    await self.socket.send_bytes(packed.compress(text.encode()) + packed.flush(zlib.Z_SYNC_FLUSH))
            except ConnectionError:
                return

    async def close(self, code: int, reason: str = "") -> None:
        """Close it with a code; a session it carried can be resumed."""
        self.closed_by_us = True
        await self.socket.close(code=code, message=reason.encode())

    def abort(self) -> None:
        """Break it without a word."""
        if self.request.transport is not None:
            self.request.transport.abort()


@dataclass(eq=False)
class Session:
    """A session, begun by IDENTIFY. Its events are stored, so that a later connection can take it up with RESUME."""

    id: str
    intents: int
    connection: Connection | None
    shard: tuple[int, int] = (0, 1)
    """Number and count."""
    seq: int = 0
    left_at: float = 0.0
    _sent: list[tuple[str, Json]] = field(default_factory=list)

    def receives(self, guild: str) -> bool:
        """Are a guild's events in its shard? Those of no guild are in the first one."""
        number, count = self.shard
        return (int(guild or 0) >> 22) % count == number

    def tell(self, event: str, data: Json) -> None:
        """Send one event, now or when the session is taken up again."""
        self.seq += 1
        self._sent.append((event, data))
        if self.connection is not None:
            self.connection.put(0, data, seq=self.seq, event=event)

    def take_up(self, connection: Connection, seq: int) -> None:
        """Resume over another connection, with all events after `seq`."""
        if self.connection is not None:
            self.connection.session = None
            self.connection.abort()
        self.connection, connection.session = connection, self
        for number, (event, data) in enumerate(self._sent[seq:], seq + 1):
            connection.put(0, data, seq=number, event=event)
        self.tell("RESUMED", {"_trace": []})

    def events(self, name: str) -> list[Json]:
        """Return the data of every event of this name."""
        return [data for event, data in self._sent if event == name]
