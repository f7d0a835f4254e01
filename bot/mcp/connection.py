"""One server: a task that owns its connection, and calls from everybody else.

The MCP library's client is opened and closed in the owner's task and nowhere else; it never reconnects by itself, so
the owner lives one `session` after the other. There is no owner until somebody needs the server, and it sleeps when
nobody has needed it for long or when it has tried often enough. Called by `toolbox`; knows one server and no other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import anyio

from bot.domain.capabilities import Piece, ServerCapabilities
from bot.domain.messages import ToolCall
from bot.domain.pins import Pinned
from bot.domain.servers import CachedCapabilities, ServerConfig, ServerStatus
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolOutcome
from bot.errors import ServerTrouble
from bot.logs import out_of_context
from bot.mcp import calls, content_format, request_context
from bot.mcp.activity import ActivityTracker
from bot.mcp.call_tracker import ActiveCall, ActiveCalls
from bot.mcp.circuit_breaker import CircuitBreaker
from bot.mcp.connection_timing import ConnectionTiming
from bot.mcp.disconnect_reason import DisconnectReason, Ended
from bot.mcp.errors import Problem, failed_listing, failed_request
from bot.mcp.negotiation import ProtocolNegotiation
from bot.mcp.protocol_noise import NoiseCounter
from bot.mcp.redaction import Redaction
from bot.mcp.server_log import ServerLog
from bot.mcp.server_status import ServerStatusTracker
from bot.mcp.session import ConnectionDependencies, Session
from bot.mcp.tool_pinning import ToolPinning
from bot.ports import CallContext

# -------------------- reconnect backoff
# When a connection that has ended is made again.
#
# Kept by the owner of one `connection`. Counts what went wrong in a row; the times come from its `pacing`.


class ReconnectBackoff:
    """The pauses before the next try, in seconds; None means that nobody tries until somebody needs the server.
    `chance` gives random numbers in [0, 1).
    """

    def __init__(self, pacing: ConnectionTiming, chance: Callable[[], float]) -> None:
        self._pacing = pacing
        self._chance = chance
        self._failures = 0

    def failed(self) -> float | None:
        """The server could not be connected to."""
        self._failures += 1
        return self._planned(self._failures)

    def lost(self, lived: float) -> float | None:
        """A connection that worked for `lived` seconds ended by itself. One that lived long is forgiven what was
        before, and the first try after it is made at once.
        """
        self._failures = 0 if lived >= self._pacing.steady_after else self._failures + 1
        if self._failures <= 1 and self._pacing.tries:
            return self._pacing.quick_pause
        return self._planned(max(1, self._failures - 1))

    def refused(self) -> float:
        """The server does not know us. It is asked again so rarely that this never ends."""
        return self._pacing.sign_in_pause

    def afresh(self) -> None:
        """Somebody wants it tried, whatever has happened."""
        self._failures = 0

    def _planned(self, failures: int) -> float | None:
        return None if failures > self._pacing.tries else self._pacing.pause(failures, self._chance())


log = logging.getLogger(__name__)

_FORCED_SECONDS = 8.0
"""The library takes up to six seconds to end a process that ignores both a closed input and SIGTERM."""
_REMEMBERED_CALLS = 200
_Answer = TypeVar("_Answer")


UNCONFIRMED = (
    "Server {} did not confirm in time that its tools are still the ones that were approved, so nothing was sent. "
    "Ask again later to get a new approval."
)
"""Said of a call that somebody approved and that was not sent."""


class Connection:
    """The connection to one server, kept up from its start until it is closed. `redact` has its secrets. `synced` is
    what is known already, and `pinned` what is pinned of that.
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
        self.config = config
        self.condition = ServerStatusTracker(
            config,
            synced,
            shared.reports,
            ToolPinning(config.name, shared.review, pinned),
            CircuitBreaker(shared.pacing.tripping, shared.clock),
            junk=NoiseCounter(config.name, shared.clock),
            words=ServerLog(shared.clock),
            disconnected=disconnected,
            observe=shared.observe,
        )
        self.durations: deque[float] = deque(maxlen=_REMEMBERED_CALLS)
        self._shared = shared
        self._redact = redact
        self._hurry = asyncio.Event()
        self._closing = asyncio.Event()
        self._leaving = False
        self._session: Session | None = None
        self._scope: anyio.CancelScope | None = None
        self._owner: asyncio.Task[None] | None = None
        self._schedule = ReconnectBackoff(shared.pacing, shared.chance)
        self._use = ActivityTracker(shared.clock, self.condition.notify)
        self._calls = ActiveCalls(config.name, redact)
        self._failed_tries = 0
        self._asleep = True
        known = synced.capabilities
        self._approach = ProtocolNegotiation(config, known.handshake, version=known.server_version)
        self._bearer = shared.bearer(config)

    @property
    def started(self) -> bool:
        """Somebody has needed the server."""
        return self._owner is not None

    def learn(self, synced: CachedCapabilities, pinned: Pinned | None) -> None:
        """What somebody else has found out of the server, and what is pinned of it."""
        self.condition.update_cache(synced)
        if self.condition.learn_pins(pinned) and self._session is not None and self._session.usable:
            self._session.line.mark_list_changed()

    def learn_sign_in(self, version: int) -> None:
        """Which version of its sign-in is kept, 0 for none: whoever waits for one tries again."""
        if self._bearer is None or not self._bearer.learn(version):
            return
        if self.condition.status is ServerStatus.AUTH_REQUIRED and version:
            self._schedule.afresh()
            self.start()
            self._hurry.set()
        elif not version and self._session is not None and self._session.usable:
            self._session.line.mark_suspect()

    def start(self) -> None:
        """Begin to connect, and go on until closed."""
        if self._owner is None and not self._closing.is_set():
            # Whoever needs the server first starts it, and it outlives them.
            with out_of_context():
                self._owner = asyncio.create_task(self._own(), name=f"mcp:{self.config.name}")

    async def first_attempt_done(self) -> None:
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

    async def disconnect(self, limit: float) -> None:
        """Close, but let running calls end first, if they do so soon. Nothing is reported from now on."""
        self._leaving = True
        self.condition.detach()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._shared.pacing.farewell):
                while self._use.running and not self._closing.is_set():
                    await self.condition.change()
        await self.close(limit)

    async def connect(self) -> None:
        """Connect now, whatever happened before, and wait for how it ends."""
        with self._use.track_user():
            await self._connect()

    async def confirm(self) -> str:
        """Make sure that the tools are known as they are now, connecting if need be. Return why that is not so, empty
        if it is.
        """
        since = self._shared.clock()
        with self._use.track_user():
            session = await self._needed(calls.Deadline(None))
            if session is None:
                return self._why_not()
            try:
                await session.confirm(since)
            except (*calls.BROKEN, TimeoutError):
                return UNCONFIRMED.format(self.config.name)
            return ""

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. What never reached the server, or does no harm twice on the word of a trusted one, is sent once
        more if the connection comes back in time.
        """
        with self._use.track_user():
            outcome = await self._call(tool, call, context)
            if isinstance(outcome, CallOutcomeUnknown):
                self._use.mark_unresponsive()
            return outcome

    async def _call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        deadline = calls.Deadline(context.deadline)
        if await self._needed(deadline) is None:
            return CallNotSent(self._why_not())
        try:
            patience = deadline.within(self.config.read_timeout(tool.original_name))
            under_way = await self._calls.begin(context, patience)
        except TimeoutError:
            return CallNotSent(self._calls.busy)
        try:
            return await self._sent(tool, call, under_way, deadline)
        finally:
            self._calls.end(under_way)

    async def _sent(self, tool: Tool, call: ToolCall, under_way: ActiveCall, deadline: calls.Deadline) -> ToolOutcome:
        reason = ""
        unknown: CallOutcomeUnknown | None = None
        for _ in range(2):
            session = await self._needed(deadline)
            limits = calls.CallLimits.of(self.config, tool, deadline)
            if session is None:
                break
            if limits.silence <= 0:
                return unknown or CallNotSent(f"There was no time left for server {self.config.name}.")
            if objection := self.condition.rejection_reason(tool):
                # A server that was at rest may have become another one since its tools were offered.
                return unknown or CallNotSent(objection)
            began = asyncio.get_running_loop().time()
            outcome = await calls.send(session.client, tool, call, under_way, limits=limits, redact=self._redact)
            if self._bearer is not None and self._bearer.out:
                session.line.mark_closed()
            match outcome:
                case calls.RequestNotSent(reason, gone):
                    session.line.mark_closed() if gone else session.line.mark_suspect()
                case calls.NoResponse() if tool.repeatable:
                    unknown = CallOutcomeUnknown(outcome.reason)
                    session.line.mark_suspect()
                case calls.NoResponse():
                    return CallOutcomeUnknown(outcome.reason)
                case CallReturned():
                    self.durations.append(asyncio.get_running_loop().time() - began - under_way.seconds_asked)
                    return outcome
                case _:
                    return outcome
        return unknown or CallNotSent(self._why_not(reason))

    async def sync(self) -> ServerCapabilities:
        """Ask the server for everything it offers. Connects if need be. Raises ServerTrouble."""
        with self._use.track_internal():
            session = await self._wanted()
            try:
                return await session.sync()
            except (*calls.BROKEN, TimeoutError) as error:
                problem = self._signed_out or failed_listing(self.config, error, self._redact)
                raise error_message(self._redact.clean(problem)) from error

    async def read(self, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""
        with self._use.track_user():
            session = await self._wanted()
            with self._calls.beside():
                return await self._asked(
                    "the resource", content_format.format_resource(session.client, uri, self._redact)
                )

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Have a prompt written out. Raises ServerTrouble."""
        with self._use.track_user():
            session = await self._wanted()
            asking = content_format.format_prompt(session.client, name, arguments, self._redact)
            with self._calls.beside():
                return await self._asked("the prompt", asking)

    async def _asked(self, what: str, asking: Awaitable[_Answer]) -> _Answer:
        try:
            async with asyncio.timeout(self.config.tool_timeout):
                return await asking
        except (*calls.BROKEN, TimeoutError) as error:
            if self._signed_out:
                raise error_message(self._redact.clean(self._signed_out)) from error
            cause, fix = failed_request(self.config, what, error, self._redact)
            raise ServerTrouble(self._redact.clean(cause), fix) from error

    @property
    def _signed_out(self) -> str:
        """Why the server does not let the bot in, if that is what it does."""
        return self._bearer.problem if self._bearer is not None and self._bearer.out else ""

    async def _wanted(self) -> Session:
        """A session for what an admin asks, who waits as long as connecting may take. Raises ServerTrouble."""
        if self.condition.status is ServerStatus.DISCONNECTED:
            raise error_message(self._why_not())
        await self._connect()
        session = self._session
        if session is None or not session.usable:
            raise error_message(self._why_not())
        return session

    async def _connect(self) -> None:
        if self._session is None or not self._session.usable:
            self.condition.breaker.reset()
            self._schedule.afresh()
            self.start()
            await self._usable_session(self.condition.connect_limit + self._shared.pacing.patience)

    async def _needed(self, deadline: calls.Deadline) -> Session | None:
        """A session for a call. Whoever wakes a server waits as long as connecting may take; who calls one that keeps
        failing, or that must be signed in to, does not make it be tried again.
        """
        if self._session is not None and self._session.usable:
            return self._session
        out = self.condition.status in (ServerStatus.AUTH_REQUIRED, ServerStatus.DISCONNECTED)
        if out or self.condition.breaker.left:
            return None
        asleep = self._asleep or (self._session is not None and self._session.line.resting)
        self.start()
        patience = self.condition.connect_limit if asleep else self._shared.pacing.patience
        return await self._usable_session(deadline.within(patience))

    async def _usable_session(self, patience: float) -> Session | None:
        """The live session, after a wait for one that is being made. The owner is told that somebody waits."""
        tries = self._failed_tries

        def settled() -> bool:
            usable = self._session is not None and self._session.usable
            return usable or self._failed_tries > tries or self._closing.is_set() or self._leaving

        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not settled():
                    if (self._session is None or self._session.over) and not self.condition.breaker.left:
                        self._hurry.set()
                    await self.condition.change()
        return self._session if self._session is not None and self._session.usable else None

    def _why_not(self, reason: str = "") -> str:
        name, problem = self.config.name, self.condition.problem
        left = self.condition.breaker.left
        if left and problem:
            until = "until an admin connects it" if math.isinf(left) else f"for {math.ceil(left)} s"
            return f"Server {name} keeps failing and is left alone {until}. {problem}"
        if problem or reason:
            return problem or reason
        if self.condition.status is ServerStatus.DISCONNECTED and not self._closing.is_set():
            return f"Server {name} is disconnected. Fix: connect it again."
        return f"Server {name} is not connected."

    async def _own(self) -> None:
        try:
            await self._keep_up()
        finally:
            self.condition.ended()

    async def _keep_up(self) -> None:
        while not self._closing.is_set():
            began = asyncio.get_running_loop().time()
            ended = await self._connect_and_serve()
            if self._closing.is_set():
                return
            if ended is None:
                self._asleep = True
                self.condition.mark_idle()
                await self._hurry.wait()
            else:
                await self._rest(self._next_try(ended, asyncio.get_running_loop().time() - began))

    def _next_try(self, ended: Ended, lived: float) -> float | None:
        """How long to wait before it; None if nobody tries until somebody needs the server."""
        if ended.worked:
            self.condition.breaker.lost()
            pause = self._schedule.lost(lived)
        elif ended.status is ServerStatus.AUTH_REQUIRED:
            pause = self._schedule.refused()
        else:
            self.condition.breaker.failed()
            pause = self._schedule.failed()
        self._failed_tries += not ended.worked
        self.condition.failed(ended.status, ended.problem)
        if pause is None:
            log.warning("MCP server %s is tried no more until somebody needs it", self.config.name)
        return pause

    async def _rest(self, pause: float | None) -> None:
        """Wait before the next try. Whoever wants the server cuts it short, though not to nothing."""
        self._asleep = pause is None
        nudge = self._shared.pacing.nudge_after
        least = asyncio.get_running_loop().time() + (nudge if pause is None else min(pause, nudge))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(least):
                await self._closing.wait()

    async def _connect_and_serve(self) -> Ended | None:
        """One session from its beginning to its end: how it ended, None if because nobody needed it."""
        self._hurry.clear()
        session = self._session = Session(
            self.condition,
            self._shared,
            self._closing,
            self._approach,
            self._use,
            redact=self._redact,
            calls=self._calls,
        )
        error: BaseException | None = None
        limit = self.condition.connect_limit
        with request_context.begin() as attempt:
            try:
                with anyio.CancelScope() as self._scope:
                    await session.live(self._scope)
            except BaseException as raised:
                if not isinstance(raised, Exception | BaseExceptionGroup):
                    raise
                log.debug("MCP server %s: %s", self.config.name, self._redact(repr(raised)))
                error = raised
            finally:
                self._session = self._scope = None
        line = session.line
        if line.resting and not line.lost:
            return None
        worked = line.client is not None
        if not worked and self._approach.on_failed(error, attempt, hung_up=line.lost) and not self._closing.is_set():
            return await self._connect_and_serve()
        ending = DisconnectReason(error, attempt, session.words.lines, limit, worked, line.lost)
        ended = ending.classify(self.config, self._bearer, self._redact)
        text, own = map(self._redact.clean, (ended.problem.text, ended.problem.own))
        return replace(ended, problem=Problem(text, own))


def error_message(sentence: str) -> ServerTrouble:
    """The error for a sentence with cause and fix."""
    cause, _, fix = sentence.partition(" Fix: ")
    return ServerTrouble(cause, fix)
