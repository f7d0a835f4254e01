"""Sessions of one server: its own, and those of conversations or users if its `sessions` says so.

The server's own session lists its tools, and serves everyone if the sessions are shared. A session of a conversation or
user is a `Connection` of its own: another process, or another session over HTTP. It is made by the first call, and not
made again before the next one, because its state at the server is lost. It checks calls against the tools that it
lists itself: they must be the pinned ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from bot.domain.messages import TextPart, ToolCall
from bot.domain.pins import Pinned, first_pins
from bot.domain.servers import (
    CachedCapabilities,
    ServerCapabilities,
    ServerConfig,
    ServerSnapshot,
    SessionScope,
    SessionSnapshot,
)
from bot.domain.tools import CallNotSent, CallReturned, Tool, ToolOutcome
from bot.i18n import gettext_lazy
from bot.mcp.active_calls import Deadline
from bot.mcp.errors import cause_and_fix
from bot.mcp.redaction import Redaction
from bot.mcp.server.connection import Connection
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.status import ATTEMPTING, ESTABLISHED, HIDING_TOOLS
from bot.ports import CallContext

log = logging.getLogger(__name__)

_GENTLE_SECONDS = 3.0
"""Seconds for the graceful end of a session whose place is needed."""
_MOST_ENDED = 1_000
"""Maximum number of ended sessions that are remembered for the note in the next result."""
_NEW_SESSION = (
    "[Note: server {} began a new session for this call. What it kept in the session before, such as open pages or a "
    "working folder, is gone.]"
)


class NoSession(Exception):
    """No session can be had now, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _UserSession:
    """Session of one conversation or user. `users` is the number of requests that use it."""

    def __init__(self, connection: Connection, *, follows_another: bool) -> None:
        self.connection = connection
        self.users = 0
        self._answered_at: float | None = None
        self._follows_another = follows_another

    @property
    def is_over(self) -> bool:
        """True if it has ended, or was never made, and nothing uses it."""
        return not (self.users or self.connection.tracker.state in ATTEMPTING | ESTABLISHED)

    def is_new(self) -> bool:
        """Return True once for each session that follows an ended one."""
        began_at = self.connection.tracker.snapshot.connected_at
        before, self._answered_at = self._answered_at, began_at or self._answered_at
        follows, self._follows_another = self._follows_another, False
        return follows or (before is not None and began_at is not None and before != began_at)


class SessionPool:
    """Sessions of one server, kept until they are closed. See `Connection` for the arguments.

    `own` is the server's own session.
    """

    def __init__(
        self,
        config: ServerConfig,
        shared: ConnectionDependencies,
        redact: Redaction,
        synced: CachedCapabilities,
        pinned: Pinned | None = None,
        *,
        disconnected: bool = False,
    ) -> None:
        self.own = Connection(config, shared, redact, synced, pinned, disconnected=disconnected)
        self._config = config
        self._redact = redact
        self._pinned = pinned
        self._clock = shared.clock
        self._wait_seconds = shared.timing.waits.call_wait
        timing = shared.timing
        idle_after = config.session_idle_timeout or timing.idle_after
        retries = replace(timing.retries, tries=0)
        self._shared = replace(
            shared, timing=replace(timing, retries=retries, idle_after=idle_after, reconnecting=None)
        )
        self._sessions: dict[str, _UserSession] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._making = asyncio.Lock()
        self._released = asyncio.Event()
        self._problem = ""
        self._closed = False

    @property
    def snapshot(self) -> ServerSnapshot:
        """Current snapshot of the server."""
        snapshot, now, wall_clock = self.own.tracker.snapshot, self._clock(), time.time()
        sessions = []
        for session in self._sessions.values():
            if (connected_at := session.connection.tracker.snapshot.connected_at) is not None:
                idle = wall_clock - (now - session.connection.activity.unused_since)
                sessions.append(SessionSnapshot(connected_at, None if session.users else idle))
        used_at = wall_clock - (now - self.own.activity.unused_since)
        is_used = snapshot.connected_at is not None and used_at > snapshot.connected_at
        return replace(snapshot, sessions=tuple(sessions), last_used_at=used_at if is_used else None)

    def take_synced(self, synced: CachedCapabilities, pinned: Pinned | None) -> None:
        """Take over capabilities and pins that another process has synced."""
        self._pinned = pinned
        self.own.take_synced(synced, pinned)
        for session in self._sessions.values():
            session.connection.take_synced(session.connection.tracker.synced, self._trusted_pins)

    def learn_sign_in(self, version: int) -> None:
        """Record the stored version of the sign-in, 0 for none."""
        for connection in self._connections:
            connection.learn_sign_in(version)

    async def confirm(self, context: CallContext) -> str:
        """Make sure that the tools of the session for this context are up to date; connect if needed. Return the reason
        if that fails, else an empty text.
        """
        if self._config.sessions is SessionScope.SHARED:
            return await self.own.confirm()
        try:
            async with self._acquire(self._key(context), Deadline(context.deadline)) as session:
                return await session.connection.confirm()
        except NoSession as error:
            return error.reason

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool in the session for this context."""
        if self._config.sessions is SessionScope.SHARED:
            return await self.own.call(tool, call, context)
        try:
            async with self._acquire(self._key(context), Deadline(context.deadline)) as session:
                outcome = await session.connection.call(tool, call, context)
                if not session.is_new() or not isinstance(outcome, CallReturned):
                    return outcome
                note, result = TextPart(_NEW_SESSION.format(self._config.name)), outcome.result
                return CallReturned(replace(result, parts=(*result.parts, note)))
        except NoSession as error:
            return CallNotSent(error.reason)

    def detach(self) -> None:
        """Stop storing capabilities, because the server is removed or replaced."""
        for connection in self._connections:
            connection.tracker.detach()

    async def close(self, limit: float) -> None:
        """End all sessions and their processes concurrently, gracefully for `limit` seconds, then by force."""
        self._stop()
        await asyncio.gather(*(connection.close(limit) for connection in self._connections), *self._ending)

    async def disconnect(self, limit: float) -> None:
        """Close after the running calls have ended, at most `limit` seconds later. Nothing is reported from now on."""
        self._stop()
        await asyncio.gather(*(connection.disconnect(limit) for connection in self._connections), *self._ending)

    def _stop(self) -> None:
        self._closed = True
        self._released.set()

    @property
    def _connections(self) -> list[Connection]:
        return [self.own, *(session.connection for session in self._sessions.values())]

    @property
    def _trusted_pins(self) -> Pinned:
        known = self.own.tracker.synced.capabilities.tools
        return first_pins(known) if self._pinned is None else self._pinned

    def _key(self, context: CallContext) -> str:
        """Return the key of the session for a call. Users are apart in each workspace, because a session may hold what
        a workspace does not share with another.
        """
        conversation = context.conversation
        if self._config.sessions is SessionScope.CONVERSATION:
            return str(conversation or "")
        return f"{conversation.workspace_key if conversation else ''} {context.author.principal}"

    @asynccontextmanager
    async def _acquire(self, key: str, deadline: Deadline) -> AsyncIterator[_UserSession]:
        """Use the session with this key within the block. Raises NoSession."""
        session = self._sessions.get(key)
        if session is None or session.is_over:
            try:
                async with asyncio.timeout(deadline.cut(self._wait_seconds)), self._making:
                    session = await self._make(key)
            except TimeoutError:
                cause = gettext_lazy(
                    "Server {server} has no free session: all of its {count} are in use, so nothing was sent. "
                    "Try again later.",
                    server=self._config.name,
                    count=self._config.max_sessions,
                )
                raise NoSession(cause_and_fix(cause, gettext_lazy("an admin can raise its max_sessions"))) from None
        session.users += 1
        try:
            yield session
        finally:
            session.users -= 1
            tracker = session.connection.tracker
            self._problem = tracker.problem or self._problem
            self.own.tracker.asks_in_older_way |= tracker.asks_in_older_way
            self._released.set()

    async def _make(self, key: str) -> _UserSession:
        """Return the session with this key. A new one may need the place of the one that is idle for the longest time.
        Raises NoSession.
        """
        while True:
            tracker = self.own.tracker
            if self._closed or tracker.state in HIDING_TOOLS or tracker.left:
                raise NoSession(self.own.why_not(self._problem))
            for other in [other for other, session in self._sessions.items() if session.is_over]:
                self._end(other)
            if (session := self._sessions.get(key)) is not None:
                return session
            if len(self._sessions) + len(self._ending) < self._config.max_sessions:
                connection = Connection(
                    self._config,
                    self._shared,
                    self._redact,
                    tracker.synced,
                    self._trusted_pins,
                    parent=self.own,
                    listener=self._on_report,
                )
                session = self._sessions[key] = _UserSession(connection, follows_another=key in self._ended)
                self._ended.pop(key, None)
                return session
            await self._free_place()

    async def _free_place(self) -> None:
        """Wait until a session has ended. One without a running call is ended, or a call has to end first."""
        self._released.clear()
        if not self._ending:
            idle = [key for key, session in self._sessions.items() if not session.users]
            if idle:
                longest_idle = min(idle, key=lambda key: self._sessions[key].connection.activity.unused_since)
                log.info("MCP server %s: a session is ended, because another one needs its place", self._config.name)
                self._end(longest_idle)
        await self._released.wait()

    def _end(self, key: str) -> None:
        """End a session without users, and remember that it is gone."""
        connection = self._sessions.pop(key).connection
        if connection.started:
            self._ended[key] = None
            while len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)
            ending = asyncio.create_task(connection.close(_GENTLE_SECONDS), name=f"mcp:ending:{self._config.name}")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            ending.add_done_callback(lambda _: self._released.set())

    def _on_report(self, _server_id: str, result: ServerCapabilities | str) -> None:
        """Compare the tools of a session with the server's: the server's own session has to list different ones. A
        failed listing of a session is in its calls' results.
        """
        known = self.own.tracker.synced.capabilities.tools
        if isinstance(result, ServerCapabilities) and _definitions(result.tools) != _definitions(known):
            log.warning("MCP server %s shows other tools in a session, they are listed again", self._config.name)
            self.own.relist()


def _definitions(tools: Iterable[Tool]) -> dict[str, str]:
    return {tool.original_name: tool.definition for tool in tools}
