"""Socket Mode: the connections of an app, envelopes to one of them at a time, acknowledgements by envelope id."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from tests.fakes.slack.deliveries import Attempt, Delivery
from tests.fakes.slack.messages import Json


@dataclass
class Connection:
    """One websocket. `number` counts from 1; `muted`: it takes envelopes but its acknowledgements get lost."""

    number: int
    socket: web.WebSocketResponse
    request: web.BaseRequest
    muted: bool = False
    retiring: bool = False
    acknowledged: list[str] = field(default_factory=list)


@dataclass
class Waiting:
    """An envelope without its acknowledgement. The future ends with the payload, or fails with the connection."""

    connection: Connection
    answer: asyncio.Future[Json | str | None]


@dataclass
class Sockets:
    """All connections of the app. `choose` picks one for an envelope; by default they take turns."""

    app_id: str
    limit: Callable[[], int]
    connections: list[Connection] = field(default_factory=list)
    choose: Callable[[list[Connection]], Connection] | None = None
    _tickets: set[str] = field(default_factory=set)
    _waiting: dict[str, Waiting] = field(default_factory=dict)
    _opened: int = 0
    _turns: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def ticket(self) -> str:
        """Return a one-time right to connect."""
        ticket = uuid.uuid4().hex
        self._tickets.add(ticket)
        return ticket

    async def wait_for_connections(self, count: int = 1, seconds: float = 60.0) -> None:
        """Wait until this many connections are open.

        Raises:
            TimeoutError: they were not within these seconds of real time.
        """
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: len(self.connections) >= count)

    async def wait_for_reconnect(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many connections have ever been opened and one of them is open now."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: self._opened >= count and bool(self.connections))

    @property
    def ever(self) -> int:
        """Number of connections that were ever opened."""
        return self._opened

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection, from its ticket to its end."""
        ticket = request.query.get("ticket", "")
        if ticket not in self._tickets:
            return web.Response(status=404)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if len(self.connections) >= self.limit():
            await socket.send_json({"type": "disconnect", "reason": "too_many_websockets", "debug_info": {}})
            await socket.close()
            return socket
        self._opened += 1
        connection = Connection(self._opened, socket, request)
        await socket.send_json(
            {
                "type": "hello",
                "num_connections": len(self.connections) + 1,
                "debug_info": {"host": "applink-fake", "build_number": 1, "approximate_connection_time": 18060},
                "connection_info": {"app_id": self.app_id},
            }
        )
        self.connections.append(connection)
        await self._tell()
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    self._heard(connection, message.data)
        finally:
            self.connections.remove(connection)
            for waiting in self._waiting.values():
                if waiting.connection is connection and not waiting.answer.done():
                    waiting.answer.set_exception(ConnectionError())
            await self._tell()
        return socket

    async def carry(self, delivery: Delivery, attempt: Attempt, reason: str, within: float) -> None:
        """Send one envelope to one connection and wait for its acknowledgement."""
        usable = [c for c in self.connections if not c.socket.closed and not c.retiring] or self.connections
        if not usable:
            attempt.outcome = "connection_failed"
            return
        connection = self.choose(usable) if self.choose else usable[self._turns % len(usable)]
        self._turns += 1
        attempt.by, began = f"connection {connection.number}", time.monotonic()
        envelope: Json = {
            "envelope_id": f"{delivery.id}-{attempt.number}" if attempt.number else delivery.id,
            "type": delivery.kind,
            "payload": delivery.payload,
            "accepts_response_payload": delivery.kind != "events_api",
        }
        if delivery.kind == "events_api":
            envelope |= {"retry_attempt": attempt.number, "retry_reason": reason}
        waiting = Waiting(connection, asyncio.get_running_loop().create_future())
        self._waiting[envelope["envelope_id"]] = waiting
        try:
            await connection.socket.send_json(envelope)
            async with asyncio.timeout(within):
                attempt.answer = await waiting.answer
            attempt.outcome = "acknowledged"
        except TimeoutError:
            attempt.outcome = "timeout"
        except ConnectionError:
            attempt.outcome = "connection_failed"
        finally:
            self._waiting.pop(envelope["envelope_id"], None)
            attempt.seconds = time.monotonic() - began

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Announce the end to all open connections, as Slack does every few hours. They get no new events."""
        for connection in list(self.connections):
            connection.retiring = reason != "warning"
            await connection.socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "fake"}})

    async def drop(self) -> None:
        """Break every connection without a word; returns when they are gone."""
        broken = list(self.connections)
        for connection in broken:
            if connection.request.transport is not None:
                connection.request.transport.abort()
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: not any(each in self.connections for each in broken))

    async def close(self) -> None:
        """Close every connection."""
        for connection in list(self.connections):
            await connection.socket.close()

    def _heard(self, connection: Connection, text: str) -> None:
        said = json.loads(text)
        envelope = said.get("envelope_id", "")
        connection.acknowledged.append(envelope)
        waiting = self._waiting.get(envelope)
        if waiting is not None and not connection.muted and not waiting.answer.done():
            waiting.answer.set_result(said.get("payload"))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
