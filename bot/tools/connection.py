"""One server: a task that owns its connection, and calls from everybody else.

The MCP library's client is opened and closed in the owner's task and nowhere else; it never reconnects by itself, so
the owner lives one `session` after the other. There is no owner until somebody needs the server. Called by `toolbox`;
knows one server and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import anyio

from bot.domain.capabilities import Piece, ServerCapabilities
from bot.domain.messages import ToolCall
from bot.domain.servers import ServerConfig, ServerStatus, Synced
from bot.domain.tools import NotSent, Returned, Tool, ToolOutcome
from bot.errors import ServerTrouble
from bot.ports import CallContext
from bot.tools import attempts, calls, reading
from bot.tools.condition import Condition
from bot.tools.problems import connect_failure, connection_lost, failed_listing, failed_request, not_in_time
from bot.tools.session import Session, Surroundings

log = logging.getLogger(__name__)

_FORCED_SECONDS = 8.0
"""The library takes up to six seconds to end a process that ignores both a closed input and SIGTERM."""
_REMEMBERED_CALLS = 200
_REFUSED = frozenset((401, 403))
_Answer = TypeVar("_Answer")


class Connection:
    """The connection to one server, kept up from its start until it is closed. `synced` is what is known already."""

    def __init__(
        self, config: ServerConfig, shared: Surroundings, synced: Synced, *, disconnected: bool = False
    ) -> None:
        self.config = config
        self.condition = Condition(config, synced, shared.reports, disconnected=disconnected)
        self.durations: deque[float] = deque(maxlen=_REMEMBERED_CALLS)
        self._shared = shared
        self._hurry = asyncio.Event()
        self._closing = asyncio.Event()
        self._leaving = False
        self._session: Session | None = None
        self._scope: anyio.CancelScope | None = None
        self._owner: asyncio.Task[None] | None = None
        self._running_calls = 0
        self._failed_tries = 0
        self._mode = "auto"

    @property
    def started(self) -> bool:
        """Somebody has needed the server."""
        return self._owner is not None

    def start(self) -> None:
        """Begin to connect, and go on until closed."""
        if self._owner is None and not self._closing.is_set():
            self._owner = asyncio.create_task(self._own(), name=f"mcp:{self.config.name}")

    async def tried(self) -> None:
        """Wait until the first attempt to connect, if there is one, has ended one way or the other. A server whose
        tools are known is not waited for.
        """
        fresh = (ServerStatus.PENDING, ServerStatus.CONNECTING)
        while self.started and not self.condition.known and self.condition.status in fresh and not self._failed_tries:
            await self.condition.change()

    async def close(self, limit: float) -> None:
        """End the connection and its process. Gentle for `limit` seconds, then not."""
        self._closing.set()
        self._hurry.set()
        if self._owner is None:
            self.condition.ended()
            return
        if self._session is not None and self._session.idle:
            self._session.line.interrupt()
        elif self._scope is not None:
            self._scope.cancel()
        # Never `wait_for` and never a second cancellation: both would leave the child process behind.
        done, _ = await asyncio.wait({self._owner}, timeout=limit)
        if not done and self._scope is not None:
            self._scope.cancel()
            done, _ = await asyncio.wait({self._owner}, timeout=_FORCED_SECONDS)
        if not done:
            log.error("the connection to MCP server %s does not end", self.config.name)

    async def leave(self, limit: float) -> None:
        """Close, but let running calls end first, if they do so soon. Nothing is reported from now on."""
        self._leaving = True
        self.condition.silence()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._shared.pacing.farewell):
                while self._running_calls and not self._closing.is_set():
                    await self.condition.change()
        await self.close(limit)

    async def connect(self) -> None:
        """Connect now, whatever happened before, and wait for how it ends."""
        if self._session is None or not self._session.usable:
            self._hurry.set()
            self.start()
            await self._usable_session(self.config.connect_timeout + self._shared.pacing.patience)

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. What never reached the server is sent once more if the connection comes back in time."""
        self._running_calls += 1
        began = asyncio.get_running_loop().time()
        try:
            outcome = await self._call(tool, call, context)
        finally:
            self._running_calls -= 1
            self.condition.ring()
        if isinstance(outcome, Returned):
            self.durations.append(asyncio.get_running_loop().time() - began)
        return outcome

    async def _call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        loop = asyncio.get_running_loop()
        limit = self.config.tool_timeout if context.deadline is None else context.deadline
        deadline = loop.time() + limit
        reason = ""
        for _ in range(2):
            session = await self._needed(deadline - loop.time())
            left = deadline - loop.time()
            if session is None or left <= 0:
                break
            outcome = await calls.send(session.client, tool, call, context, limit=left, redact=self._shared.redact)
            if not isinstance(outcome, calls.Undelivered):
                return outcome
            reason = outcome.reason
            if outcome.gone:
                session.line.lose()
            else:
                session.line.doubt()
        return NotSent(self.condition.problem or reason or self._why_not())

    async def sync(self) -> ServerCapabilities:
        """Ask the server for everything it offers. Connects if need be. Raises ServerTrouble."""
        session = await self._wanted()
        try:
            return await session.sync()
        except (*calls.BROKEN, TimeoutError) as error:
            raise trouble(self._shared.clean(failed_listing(self.config, error, self._shared.redact))) from error

    async def read(self, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""
        session = await self._wanted()
        return await self._asked("the resource", reading.resource(session.client, uri, self._shared.redact))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Have a prompt written out. Raises ServerTrouble."""
        session = await self._wanted()
        asking = reading.prompt(session.client, name, arguments, self._shared.redact)
        return await self._asked("the prompt", asking)

    async def _asked(self, what: str, asking: Awaitable[_Answer]) -> _Answer:
        try:
            async with asyncio.timeout(self.config.tool_timeout):
                return await asking
        except (*calls.BROKEN, TimeoutError) as error:
            cause, fix = failed_request(self.config, what, error, self._shared.redact)
            raise ServerTrouble(self._shared.clean(cause), fix) from error

    async def _wanted(self) -> Session:
        """A session for what an admin asks, who waits as long as connecting may take. Raises ServerTrouble."""
        if self.condition.status is ServerStatus.DISCONNECTED:
            raise trouble(self._why_not())
        await self.connect()
        session = self._session
        if session is None or not session.usable:
            raise trouble(self.condition.problem or self._why_not())
        return session

    async def _needed(self, left: float) -> Session | None:
        """A session for a call. The first call to a server at rest waits as long as connecting may take; one to a
        server that must be signed in to does not make it ask again.
        """
        if self.condition.status in (ServerStatus.AUTH_REQUIRED, ServerStatus.DISCONNECTED):
            return None
        patience = self._shared.pacing.patience if self.started else self.config.connect_timeout
        self.start()
        if self._session is None or not self._session.usable:
            self._hurry.set()
        return await self._usable_session(min(patience, left))

    async def _usable_session(self, patience: float) -> Session | None:
        """The live session, after a wait for one that is being made."""
        tries = self._failed_tries

        def settled() -> bool:
            usable = self._session is not None and self._session.usable
            return usable or self._failed_tries > tries or self._closing.is_set() or self._leaving

        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not settled():
                    await self.condition.change()
        return self._session if self._session is not None and self._session.usable else None

    def _why_not(self) -> str:
        name = self.config.name
        if self.condition.status is ServerStatus.DISCONNECTED and not self._closing.is_set():
            return f"Server {name} is disconnected. Fix: connect it again."
        return f"Server {name} is not connected."

    async def _own(self) -> None:
        try:
            await self._keep_up()
        finally:
            self.condition.ended()

    async def _keep_up(self) -> None:
        failures = 0
        while not self._closing.is_set():
            began = asyncio.get_running_loop().time()
            problem, status, worked = await self._connect_and_serve()
            if self._closing.is_set():
                return
            lived = asyncio.get_running_loop().time() - began
            failures = 1 if worked and lived >= self._shared.pacing.steady_after else failures + 1
            self._failed_tries += not worked
            self.condition.failed(status, problem)
            await self._rest(self._pause(status, failures, worked=worked))

    def _pause(self, status: ServerStatus, failures: int, *, worked: bool) -> float:
        pacing = self._shared.pacing
        if status is ServerStatus.AUTH_REQUIRED:
            return pacing.sign_in_pause
        if worked and failures == 1:
            return pacing.quick_pause
        return pacing.pause(failures - worked, self._shared.chance())

    async def _rest(self, pause: float) -> None:
        """Wait before the next try. A call that wants the server cuts it short, though not to nothing."""
        least = asyncio.get_running_loop().time() + min(pause, self._shared.pacing.nudge_after)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(least):
                await self._closing.wait()

    async def _connect_and_serve(self) -> tuple[str, ServerStatus, bool]:
        """One session from its beginning to its end: why it ended, what that means, and whether it had ever worked."""
        self._hurry.clear()
        session = self._session = Session(self.condition, self._shared, self._closing, self._mode)
        error: BaseException | None = None
        with attempts.begin() as attempt:
            try:
                with anyio.CancelScope() as self._scope:
                    await session.live(self._scope)
            except BaseException as raised:
                if not isinstance(raised, Exception | BaseExceptionGroup):
                    raise
                log.debug("MCP server %s: %s", self.config.name, self._shared.redact(repr(raised)))
                error = raised
            finally:
                self._session = self._scope = None
        words, line = session.words.lines, session.line
        worked = line.client is not None
        # Some older servers die of the question that finds out the protocol: the next try does not ask it.
        died_asked = line.lost and not worked and self._mode == "auto"
        self._mode = "legacy" if died_asked or (worked and self._mode == "legacy") else "auto"
        if worked and (line.lost or error is None):
            problem = connection_lost(self.config, words)
        elif error is None:
            problem = not_in_time(self.config, words)
        else:
            problem = connect_failure(self.config, error, attempt, words, self._shared.redact)
        refused = not worked and attempt.status in _REFUSED
        status = ServerStatus.AUTH_REQUIRED if refused else ServerStatus.FAILED
        return self._shared.clean(problem), status, worked


def trouble(sentence: str) -> ServerTrouble:
    """The error for a sentence with cause and fix."""
    cause, _, fix = sentence.partition(" Fix: ")
    return ServerTrouble(cause, fix)
