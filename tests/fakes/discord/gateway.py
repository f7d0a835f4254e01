"""The gateway: the protocol with each connection, which sessions get an event, and trouble for both."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.fakes.discord import events
from tests.fakes.discord.intents import ALL_INTENTS, Intent, has_disallowed_intent
from tests.fakes.discord.refusals import Json
from tests.fakes.discord.sessions import Connection, Session
from tests.fakes.discord.state import DiscordState

LONGEST = 4096
OF_GUILDS = frozenset({"GUILD_CREATE", "GUILD_UPDATE", "GUILD_DELETE"})
IDENTIFY = frozenset({"token", "properties", "compress", "large_threshold", "shard", "presence", "intents"})


@dataclass
class Gateway:
    """All connections and sessions of the app. Counters: `opened` connections, `identified` and `resumed` sessions,
    `hasty` IDENTIFYs that came too soon after another.
    """

    world: DiscordState
    connections: list[Connection] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    opened: int = 0
    resumed: int = 0
    hasty: int = 0
    refuses: bool = False
    """Refuse to upgrade, as when the gateway is down."""
    identified_at: list[float] = field(default_factory=list)
    """The loop's time of each IDENTIFY."""
    _identified_at: dict[int, float] = field(default_factory=dict)
    """By bucket."""
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def identify_count(self) -> int:
        """Number of the app's IDENTIFYs."""
        return self.world.identified

    @property
    def live(self) -> list[Session]:
        """The sessions that are connected."""
        return [session for session in self.sessions.values() if session.connection is not None]

    def tell(self, event: str, data: Json, intent: Intent | None, bare: Json | None) -> None:
        """Send an event to every session that asked for it; `bare` to those without Message Content."""
        self._forget()
        guild = str(data.get("guild_id") or (data["id"] if event in OF_GUILDS else ""))
        for session in self.sessions.values():
            if not session.receives(guild):
                continue
            if intent is None or session.intents & intent:
                seen = bare is None or session.intents & Intent.MESSAGE_CONTENT
                session.tell(event, data if seen or bare is None else bare)

    async def wait_for_connections(self, count: int = 1, seconds: float = 60.0) -> None:
        """Wait until this many sessions are connected.

        Raises:
            TimeoutError: they were not within these seconds of real time.
        """
        await self._wait(lambda: len(self.live) >= count, seconds)

    async def wait_for_disconnect(self, seconds: float = 60.0) -> None:
        """Wait until no connection is open."""
        await self._wait(lambda: not self.connections, seconds)

    async def wait_for_reconnect(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many connections have ever been opened and a session is live again."""
        await self._wait(lambda: self.opened >= count and bool(self.live), seconds)

    # Trouble

    def ask_to_reconnect(self) -> None:
        """Send op 7 to all connections, as Discord does when it moves clients to other servers."""
        for connection in list(self.connections):
            connection.put(7, None)

    def invalidate(self, *, resumable: bool = False) -> None:
        """Op 9 to every connection; sessions that cannot be resumed are forgotten."""
        for session in self.live:
            assert session.connection is not None
            session.connection.put(9, resumable)
            if not resumable:
                session.connection.session = None
                del self.sessions[session.id]

    async def drop(self) -> None:
        """Break every connection without a word; returns when they are gone."""
        broken = list(self.connections)
        for connection in broken:
            connection.abort()
        await self._wait(lambda: not any(each in self.connections for each in broken), 10)

    async def close(self, code: int = 1001, reason: str = "") -> None:
        """Close every connection with a code."""
        for connection in list(self.connections):
            await connection.close(code, reason)

    def forget_sessions(self) -> None:
        """Forget every session that is not connected: the next RESUME is answered with op 9."""
        for session in list(self.sessions.values()):
            if session.connection is None:
                del self.sessions[session.id]

    # The protocol

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection, from HELLO to its end."""
        if self.refuses:
            return web.Response(status=503)
        if request.query.get("v") != "10" or request.query.get("encoding") != "json":
            self.world.unknown.append(f"gateway {request.query_string}")
            return web.Response(status=400)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened += 1
        connection = Connection(self.opened, socket, request)
        self.connections.append(connection)
        connection.put(10, {"heartbeat_interval": int(self.world.limits.heartbeat * 1000), "_trace": []})
        writer = asyncio.create_task(connection.write())
        try:
            await self._listen(connection)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await self._left(connection)
        return socket

    async def _listen(self, connection: Connection) -> None:
        async for message in connection.socket:
            if message.type is not WSMsgType.TEXT:
                continue
            code = self._heard(connection, message.data)
            if code:
                await connection.close(code)
                return
            await self._tell_of_change()

    async def _left(self, connection: Connection) -> None:
        self.connections.remove(connection)
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection, session.left_at = None, self.world.now()
            if connection.socket.close_code in {1000, 1001} and not connection.closed_by_us:
                self.sessions.pop(session.id, None)
        await self._tell_of_change()

    def _heard(self, connection: Connection, text: str) -> int:
        """Take up one payload; the code with which the connection is to be closed, or 0."""
        payload = _parse_payload(text)
        if payload is None:
            return 4002
        op, data = payload.get("op"), payload.get("d")
        kept = {name: value for name, value in data.items() if name != "token"} if isinstance(data, dict) else data
        connection.heard.append({"op": op, "d": kept})
        return 4008 if self._too_many(connection) else self._answer(connection, op, data)

    def _answer(self, connection: Connection, op: Any, data: Any) -> int:
        code = 0
        match op:
            case 1:
                connection.put(11, None)
            case 2:
                code = self._identify(connection, data)
            case 6:
                code = self._resume(connection, data)
            case _ if connection.session is None:
                code = 4003
            case 8:
                code = self._members(connection.session, data)
            case 3 | 4:
                pass
            case _:
                code = 4001
        return code

    def _identify(self, connection: Connection, data: Json) -> int:
        code = self._refusal(connection, data)
        if code:
            return code
        self.identified_at.append(asyncio.get_running_loop().time())
        number, count = data.get("shard", (0, 1))
        if self._too_soon(number):
            self.hasty += 1
            connection.put(9, False)
            return 0
        self.world.identified += 1
        session = Session(uuid.uuid4().hex, data["intents"], connection, (number, count))
        self.sessions[session.id] = connection.session = session
        self._greet(session)
        return 0

    def _too_soon(self, number: int) -> bool:
        bucket, now = number % self.world.limits.max_concurrency, self.world.now()
        last = self._identified_at.get(bucket, float("-inf"))
        self._identified_at[bucket] = now
        return now < last + self.world.limits.identify_every

    def _refusal(self, connection: Connection, data: Json) -> int:
        """Return the close code with which Discord refuses to begin a session, or 0."""
        if unknown := data.keys() - IDENTIFY:
            self.world.unknown.append(f"identify {sorted(unknown)}")
        intents = data.get("intents")
        sound = isinstance(intents, int) and not intents & ~ALL_INTENTS
        reasons = {
            4005: connection.session is not None,
            4004: data.get("token") != self.world.app.token,
            4013: not sound,
            4014: sound and has_disallowed_intent(data["intents"], self.world.app),
            4010: _shards(data) == 0,
            4011: _shards(data) < self.world.limits.fewest_shards,
        }
        return next((code for code, holds in reasons.items() if holds), 0)

    def _greet(self, session: Session) -> None:
        world = self.world
        guilds = [guild for guild in world.guilds.values() if guild.with_bot and session.receives(guild.id)]
        session.tell(
            "READY",
            {
                "v": 10,
                "user": world.bot.to_json() | {"flags": 0, "verified": True, "mfa_enabled": False, "email": None},
                "guilds": [{"id": guild.id, "unavailable": True} for guild in guilds],
                "session_id": session.id,
                "session_type": "normal",
                "resume_gateway_url": world.gateway_url,
                "application": {"id": world.app.id, "flags": world.app.flags},
                "private_channels": [],
                "relationships": [],
                "user_settings": {},
                "shard": list(session.shard),
            },
        )
        if session.intents & Intent.GUILDS:
            for guild in guilds:
                with_members = bool(session.intents & Intent.GUILD_MEMBERS)
                session.tell("GUILD_CREATE", events.described_guild(world, guild, with_members=with_members))

    def _resume(self, connection: Connection, data: Json) -> int:
        if connection.session is not None:
            return 4005
        if data.get("token") != self.world.app.token:
            return 4004
        self._forget()
        session = self.sessions.get(str(data.get("session_id")))
        if session is None:
            connection.put(9, False)
            return 0
        seq = data.get("seq")
        if not isinstance(seq, int) or seq > session.seq:
            return 4007
        session.take_up(connection, seq)
        self.resumed += 1
        return 0

    def _members(self, session: Session, data: Json) -> int:
        guild = self.world.guilds.get(str(data.get("guild_id")))
        if guild is None or not guild.with_bot:
            return 0
        wanted = {str(user) for user in data.get("user_ids") or []}
        query = str(data.get("query") or "")
        if not wanted and not query and not session.intents & Intent.GUILD_MEMBERS:
            return 4014
        found = [
            member.to_json()
            for member in guild.members.values()
            if (member.user.id in wanted if wanted else member.user.handle.startswith(query.lower()))
        ]
        chunk: Json = {"guild_id": guild.id, "members": found, "chunk_index": 0, "chunk_count": 1, "presences": []}
        not_found = sorted(wanted - guild.members.keys())
        session.tell("GUILD_MEMBERS_CHUNK", chunk | {"not_found": not_found, "nonce": data.get("nonce")})
        return 0

    def _too_many(self, connection: Connection) -> bool:
        now = self.world.now()
        while connection.sends and connection.sends[0] <= now - 60:
            connection.sends.popleft()
        connection.sends.append(now)
        return len(connection.sends) > self.world.limits.gateway_sends

    def _forget(self) -> None:
        """Forget sessions that were not resumed in time."""
        now = self.world.now()
        for session in list(self.sessions.values()):
            if session.connection is None and now > session.left_at + self.world.limits.resume_within:
                del self.sessions[session.id]

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def _tell_of_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _shards(identify: Json) -> int:
    """Return the number of shards in an IDENTIFY, 0 if its shard is not one of them."""
    match identify.get("shard", [0, 1]):
        case [int(number), int(count)] if 0 <= number < count:
            return count
        case _:
            return 0


def _parse_payload(text: str) -> Json | None:
    """Return a payload, or None if it is invalid or too long."""
    try:
        payload = json.loads(text)
    except ValueError:
        return None
    return payload if isinstance(payload, dict) and len(text.encode()) <= LONGEST else None
