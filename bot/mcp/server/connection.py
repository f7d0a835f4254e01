"""Connection to one server: an owner task, and calls from other tasks.

Only the owner task opens and closes the MCP library's client, which never reconnects by itself. The owner runs one
`Session` after the other. It starts with the first use and ends when the server is idle or the retries are used up.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

from bot.domain.messages import ToolCall
from bot.domain.pins import Pinned
from bot.domain.servers import (
    CachedCapabilities,
    CompletionTarget,
    Piece,
    ServerCapabilities,
    ServerConfig,
    ServerStatus,
)
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolKind, ToolOutcome
from bot.errors import NotConnected, ServerTrouble
from bot.i18n import gettext_lazy
from bot.logs import out_of_context
from bot.mcp.active_calls import (
    LONGEST_WAIT,
    ActiveCall,
    ActiveCalls,
    ActivityTracker,
    CallLimits,
    Deadline,
    NoResponse,
    RequestNotSent,
)
from bot.mcp.errors import Problem, cause_and_fix, record_request, split_fix, with_lead
from bot.mcp.redaction import Redaction
from bot.mcp.resource_tools import list_resources
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.retry import SIGN_IN_PAUSE, ReconnectBackoff
from bot.mcp.server.status import (
    BEFORE_FIRST_SESSION,
    BROKEN_OFF,
    ESTABLISHED,
    HIDING_TOOLS,
    SESSION_OVER,
    Event,
    OnReport,
    ServerStatusTracker,
    State,
)
from bot.ports import CallContext

if TYPE_CHECKING:
    from bot.mcp.failures import SessionEnd
    from bot.mcp.server.session import Session
    from bot.mcp.transports.open import ProtocolNegotiation

log = logging.getLogger(__name__)

_COMPLETION_SECONDS = 1.5
"""Limit of suggestions: a form waits for them, and platforms give a form three seconds."""

_FORCED_SECONDS = 8.0
"""The library needs up to six seconds to end a process that ignores a closed input and SIGTERM."""
_REMEMBERED_CALLS = 200
_REMEMBERED_FAILURES = 3
_FIRST_RETRY_PAUSE = 0.1
"""Seconds before the first of `connect_retries`; each further pause is twice as long."""


class Connection:
    """Connection to one server, kept until it is closed. `redact` has its secrets. `synced` are its cached
    capabilities, and `pinned` their pins. If it is one of several, `parent` is the server's own connection, and
    `listener` receives its synced capabilities.
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
        parent: Connection | None = None,
        listener: OnReport | None = None,
    ) -> None:
        self.config = config
        self.shared = shared = replace(shared, timing=shared.timing.for_server(config.reconnect))
        self._parent = parent
        self.durations: deque[float] = parent.durations if parent else deque(maxlen=_REMEMBERED_CALLS)
        self.failures: deque[tuple[float, str, str]] = parent.failures if parent else deque(maxlen=_REMEMBERED_FAILURES)
        self.tracker: ServerStatusTracker = ServerStatusTracker(
            config,
            synced,
            pinned,
            shared,
            disconnected=disconnected,
            notifier=listener,
            parent=parent.tracker if parent else None,
        )
        self.activity = ActivityTracker(shared.clock, self.tracker.notify)
        self.redact = redact
        self._retry_now = asyncio.Event()
        self.closing = asyncio.Event()
        self._session: Session | None = None
        self._scope: anyio.CancelScope | None = None
        self._owner: asyncio.Task[None] | None = None
        self._backoff = ReconnectBackoff(shared.timing.retries, shared.chance)
        self.calls = ActiveCalls(config.name, redact)
        self._failed_attempts = 0
        self._failed_at = -math.inf
        self._hangs = False
        self.token_provider = shared.token_provider(config)

    @cached_property
    def negotiation(self) -> ProtocolNegotiation:
        """Choice of each attempt's transport and protocol."""
        from bot.mcp.transports.open import ProtocolNegotiation  # noqa: PLC0415 - see _run_session

        known = self.tracker.synced.capabilities
        return ProtocolNegotiation(self.config, known.handshake, version=known.server_version)

    @property
    def started(self) -> bool:
        """True after the first use of the server."""
        return self._owner is not None

    def take_synced(self, synced: CachedCapabilities, pinned: Pinned | None) -> None:
        """Take over capabilities and pins that another process has synced."""
        self.tracker.update_cache(synced)
        session = self._live_session
        if self.tracker.learn_pins(pinned) and session is not None:
            session.listings.mark_changed()

    def learn_sign_in(self, version: int) -> None:
        """Record the stored version of the sign-in, 0 for none. A connection that waits for a sign-in retries."""
        if self.token_provider is None or not self.token_provider.cache.record_version(version):
            return
        if self.tracker.state is State.SIGN_IN_REQUIRED and version:
            self._backoff.reset()
            self.start()
            self._retry_now.set()
        elif not version and (session := self._live_session) is not None:
            session.report(Event.REQUEST_FAILED)

    def start(self) -> None:
        """Begin to connect, and reconnect until closed."""
        if self._owner is None and not self.closing.is_set():
            # An empty context, because the owner task outlives the caller that starts it.
            with out_of_context():
                self._owner = asyncio.create_task(self._run_as_owner(), name=f"mcp:{self.config.name}")

    async def first_attempt_done(self) -> None:
        """Wait until the first running attempt to connect has ended. Return at once if the tools are known, and were
        listed for this definition of the server.
        """
        while self.started and self.tracker.has_no_tools_of_definition:
            if self._failed_attempts or self.tracker.state not in BEFORE_FIRST_SESSION:
                return
            await self.tracker.wait_for_change()

    @property
    def is_unseen(self) -> bool:
        """True if the server has failed some time ago, quickly, and before its tools were known. A server that hangs
        would delay each question.
        """
        is_waiting = self.tracker.state in (State.BACKOFF, State.EXHAUSTED) and not self.tracker.known
        may_ask = is_waiting and not self._hangs and not self.tracker.breaker.is_held
        return may_ask and self.shared.clock() - self._failed_at >= self.shared.timing.waits.look_again

    async def look_again(self) -> None:
        """Try to connect a server that `is_unseen`, and wait for it within a limit. Nothing else would use it."""
        failed_before = self._failed_attempts
        self._retry_now.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.shared.timing.waits.look_limit):
                while not (self.tracker.state is State.READY or self._failed_attempts > failed_before):
                    await self.tracker.wait_for_change()

    async def close(self, limit: float) -> None:
        """End the connection and its process, gracefully for `limit` seconds, then by force."""
        self.closing.set()
        self._retry_now.set()
        if self._owner is None:
            self.tracker.apply(Event.CLOSED)
            return
        if self._session is not None and self._session.is_waiting:
            self._session.wake()
        elif self._scope is not None:
            self._scope.cancel()
        # Never `wait_for` and never a second cancellation: both would leave the child process behind.
        done, _ = await asyncio.wait({self._owner}, timeout=limit)
        if not done and self._scope is not None:
            self._scope.cancel()
            done, _ = await asyncio.wait({self._owner}, timeout=_FORCED_SECONDS)
        if not done:
            log.error("connection to MCP server %s did not close in time", self.config.name)

    async def disconnect(self, limit: float) -> None:
        """Close after the running calls have ended, at most `limit` seconds later. Nothing is reported from now on."""
        self.tracker.detach()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.shared.timing.waits.farewell):
                while self.activity.running and not self.closing.is_set():
                    await self.tracker.wait_for_change()
        await self.close(limit)

    async def connect(self) -> None:
        """Connect now, ignoring the breaker, and wait for the result."""
        with self.activity.track_user():
            await self._connect()

    def relist(self) -> None:
        """List the tools again, because another session has shown different ones. Connect if needed."""
        if (session := self._live_session) is not None:
            session.listings.mark_changed()
        elif self.tracker.state not in HIDING_TOOLS:
            self.start()
            self._retry_now.set()

    async def confirm(self) -> str:
        """Make sure that the tools are up to date; connect if needed. Return the reason if that fails, else an empty
        text.
        """
        since = self.shared.clock()
        with self.activity.track_user():
            session = await self._call_session(Deadline(None))
            if session is None:
                return self.why_not()
            if not await session.confirm(since):
                return gettext_lazy(
                    "Server {server} did not confirm in time that its tools are still the ones that were approved, so "
                    "nothing was sent. Ask again later to get a new approval.",
                    server=self.config.name,
                )
            return ""

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. A call that never reached the server, or is repeatable on a trusted server, is sent again once if
        the connection is back in time.
        """
        with self.activity.track_user():
            if tool.kind is ToolKind.LIST_RESOURCES:
                if await self._call_session(Deadline(None)) is None:
                    return CallNotSent(self.why_not())
                return CallReturned(list_resources(call, tool, self.tracker.synced.capabilities, self.redact))
            outcome = await self._call(tool, call, context)
            match outcome:
                case CallOutcomeUnknown(reason) | CallNotSent(reason):
                    self.failures.append((time.time(), tool.original_name, reason))
                case CallReturned(result) if result.is_error:
                    # The words of a tool's own error may be a user's.
                    reason = gettext_lazy("the tool reported an error: check its arguments, and try it at the server")
                    self.failures.append((time.time(), tool.original_name, reason))
            if isinstance(outcome, CallOutcomeUnknown):
                self.activity.mark_unresponsive()
            return outcome

    async def _call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        deadline = Deadline(context.deadline)
        if await self._call_session(deadline) is None:
            return CallNotSent(self.why_not())
        try:
            seconds = deadline.cut(self.config.read_timeout(tool.original_name))
            active_call = await self.calls.begin(context, seconds)
        except TimeoutError:
            return CallNotSent(self.calls.busy_reason)
        try:
            return await self._send(tool, call, active_call, deadline)
        finally:
            self.calls.end(active_call)

    async def _send(self, tool: Tool, call: ToolCall, active_call: ActiveCall, deadline: Deadline) -> ToolOutcome:
        reason = ""
        unknown: CallOutcomeUnknown | None = None
        for _ in range(2):
            session = await self._call_session(deadline)
            limits = CallLimits.for_tool(self.config, tool, deadline)
            if session is None:
                break
            if limits.silence <= 0:
                return unknown or CallNotSent(
                    gettext_lazy("There was no time left for server {server}.", server=self.config.name)
                )
            if rejection := self.tracker.rejection(tool):
                # An idle server may have changed since its tools were offered.
                return unknown or rejection
            began = asyncio.get_running_loop().time()
            outcome = await session.send(tool, call, active_call, limits)
            if self.token_provider is not None and self.token_provider.is_signed_out:
                session.report(Event.CONNECTION_LOST)
            match outcome:
                case RequestNotSent(reason, connection_lost):
                    session.report(Event.CONNECTION_LOST if connection_lost else Event.REQUEST_FAILED)
                case NoResponse() if tool.repeatable:
                    unknown = CallOutcomeUnknown(outcome.reason)
                    session.report(Event.REQUEST_FAILED)
                case NoResponse():
                    return CallOutcomeUnknown(outcome.reason)
                case CallReturned():
                    self.durations.append(asyncio.get_running_loop().time() - began - active_call.seconds_asked)
                    return outcome
                case _:
                    return outcome
        return unknown or CallNotSent(self.why_not(reason))

    async def sync(self) -> ServerCapabilities:
        """Fetch all capabilities of the server; connect if needed. Raises ServerTrouble."""
        with self.activity.track_internal():
            session = await self._admin_session()
            return await session.sync()

    async def read_resource(self, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""
        with self.activity.track_user():
            return await (await self._admin_session()).read_resource(uri)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Get a prompt. Raises ServerTrouble."""
        with self.activity.track_user():
            return await (await self._admin_session()).get_prompt(name, arguments)

    async def complete(self, of: CompletionTarget, given: Mapping[str, str]) -> Sequence[str]:
        """Return the server's suggestions for a value; none if it has none, or no answer in time."""
        if not self.tracker.is_callable:
            return ()
        with self.activity.track_user():
            try:
                async with asyncio.timeout(_COMPLETION_SECONDS):
                    return await (await self._admin_session()).complete(of, given)
            except (ServerTrouble, TimeoutError) as error:
                log.debug("MCP server %s: no suggestions for %s: %s", self.config.name, of.argument, error)
                return ()

    async def _admin_session(self) -> Session:
        """Return a session for a request of an admin; wait for a connection at most the connect timeout. Raises
        NotConnected.
        """
        if self.tracker.status is not ServerStatus.DISCONNECTED:
            await self._connect()
            if (session := self._live_session) is not None:
                return session
        raise NotConnected(*split_fix(self.why_not()))

    @property
    def _live_session(self) -> Session | None:
        """Session to which requests may be sent, or None."""
        return self._session if self.tracker.state is State.READY else None

    async def _connect(self) -> None:
        if self._live_session is None:
            self.tracker.breaker.reset()
            self._backoff.reset()
            self.start()
            await self._usable_session(self.tracker.connect_limit + self.shared.timing.waits.call_wait)

    async def _call_session(self, deadline: Deadline) -> Session | None:
        """Return a session for a call, or None. An idle server is connected, within the connect timeout. A failing one,
        or one that needs a sign-in, is not. A short pause that the server asks for is kept.
        """
        if 0 < (pause := self.tracker.calls.left) <= deadline.cut(LONGEST_WAIT) and self.tracker.calls.is_held:
            await asyncio.sleep(pause)
        if (session := self._live_session) is not None:
            return None if self.tracker.calls.left else session
        if self.tracker.state in HIDING_TOOLS or self.tracker.left:
            return None
        self.start()
        # True if the next attempt is planned, or the current session comes from such an attempt.
        is_retrying = self.tracker.state is State.BACKOFF if self._session is None else self._session.is_retry
        is_waiting_briefly = is_retrying and self.tracker.state is not State.IDLE_CLOSING
        seconds = self.shared.timing.waits.call_wait if is_waiting_briefly else self.tracker.connect_limit
        return await self._usable_session(deadline.cut(seconds))

    async def _usable_session(self, seconds: float) -> Session | None:
        """Return the live session, waiting at most `seconds` for a connection in progress."""
        failed_before = self._failed_attempts

        def is_settled() -> bool:
            stopping = self.closing.is_set() or self.tracker.is_detached
            return self.tracker.state is State.READY or self._failed_attempts > failed_before or stopping

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_settled():
                    without_session = self._session is None or self.tracker.state in SESSION_OVER
                    if without_session and not self.tracker.breaker.left:
                        self._retry_now.set()
                    await self.tracker.wait_for_change()
        return self._live_session

    def why_not(self, reason: str = "") -> str:
        """Return the reason why no request can be sent: `reason`, if the connection itself has no problem."""
        name, problem = self.config.name, self.tracker.problem or reason
        left = self.tracker.left
        if left and problem:
            lead = (
                gettext_lazy("Server {server} keeps failing and is left alone until an admin connects it.", server=name)
                if math.isinf(left)
                else gettext_lazy(
                    "Server {server} does not work and is not tried again for {seconds} s.",
                    server=name,
                    seconds=math.ceil(left),
                )
            )
            return with_lead(lead, problem)
        if problem:
            return problem
        if self.tracker.status is ServerStatus.DISCONNECTED and not self.closing.is_set():
            cause = gettext_lazy("Server {server} is disconnected.", server=name)
            return cause_and_fix(cause, gettext_lazy("connect it again"))
        return gettext_lazy("Server {server} is not connected.", server=name)

    async def _run_as_owner(self) -> None:
        is_retry = False
        try:
            while not self.closing.is_set():
                began = asyncio.get_running_loop().time()
                ending = await self._connect_and_serve(is_retry=is_retry)
                if self.closing.is_set():
                    break
                if ending is None:
                    self.tracker.apply(Event.IDLE_CLOSED)
                    await self._retry_now.wait()
                    is_retry = False
                else:
                    pause = self._record_failure(ending, asyncio.get_running_loop().time() - began)
                    await self._wait_for_retry(pause)
                    is_retry = pause is not None
        finally:
            self.tracker.apply(Event.CLOSED)

    def _record_failure(self, ending: SessionEnd, lifetime: float) -> float | None:
        """Record the end of a session after `lifetime` seconds. Return the pause before the next attempt in seconds;
        None if the next use starts it.
        """
        pause: float | None = SIGN_IN_PAUSE
        if ending.worked:
            # A conversation that breaks its own session must not close the server to others.
            if self._parent is None:
                self.tracker.breaker.record_loss()
            pause = self._backoff.loss_pause(lifetime)
        elif ending.status is not ServerStatus.AUTH_REQUIRED:
            self.tracker.breaker.record_failure()
            pause = self._backoff.failure_pause(known=self.tracker.known)
            if ending.retry_after:
                self.tracker.breaker.hold(ending.retry_after)
                pause = None if pause is None else max(pause, ending.retry_after)
        self._failed_attempts += not ending.worked
        self._failed_at = self.shared.clock()
        self._hangs = lifetime >= self.shared.timing.waits.look_limit
        self.tracker.retries_exhausted = self._backoff.is_exhausted
        event = Event.RETRIES_EXHAUSTED if pause is None else Event.RETRY_PLANNED
        is_rejected = ending.status is ServerStatus.AUTH_REQUIRED
        self.tracker.apply(Event.SIGN_IN_REJECTED if is_rejected else event, ending.problem)
        if pause is None and self.shared.timing.retries.tries:
            log.warning("MCP server %s has no retries left, the next use connects again", self.config.name)
        return pause

    async def _wait_for_retry(self, pause: float | None) -> None:
        """Wait before the next attempt. A use shortens the pause to its minimum."""
        minimum = self.shared.timing.retries.minimum_pause
        least = asyncio.get_running_loop().time() + (minimum if pause is None else min(pause, minimum))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._retry_now.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(least):
                await self.closing.wait()

    def report(self, session: Session, event: Event) -> None:
        """Record an event of a session, if it is the live one."""
        if session is self._session:
            self.tracker.report(event)

    async def _connect_and_serve(self, *, is_retry: bool) -> SessionEnd | None:
        """Run one session, in several attempts to connect if the server has `connect_retries` and there is time left to
        connect. Return the reason of its end, None if it was idle.
        """
        ends = asyncio.get_running_loop().time() + self.tracker.connect_limit
        pause = _FIRST_RETRY_PAUSE
        for retries_left in range(self.config.connect_retries, -1, -1):
            ending = await self._run_session(ends - asyncio.get_running_loop().time(), is_retry=is_retry)
            if ending is None or ending.worked or ending.retry_after or ending.status is ServerStatus.AUTH_REQUIRED:
                break
            is_late = asyncio.get_running_loop().time() >= ends - pause
            if is_late or not retries_left or self.closing.is_set():
                break
            self.tracker.apply(Event.ATTEMPT_REPEATED)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * (0.5 + self.shared.chance())):
                    await self.closing.wait()
            pause *= 2
        return ending

    async def _run_session(self, connect_seconds: float, *, is_retry: bool) -> SessionEnd | None:
        """Run one session that has to connect within these seconds. Return the reason of its end, None if it was
        idle.
        """
        # They load the MCP library, which takes half a second of the processor: many chats use no server.
        from bot.mcp.failures import describe_end  # noqa: PLC0415 - see above
        from bot.mcp.server.session import Session  # noqa: PLC0415 - see above

        self._retry_now.clear()
        session = self._session = Session(self, is_retry=is_retry, connect_seconds=connect_seconds)
        error: BaseException | None = None
        limit = self.tracker.connect_limit
        with record_request() as attempt:
            try:
                with anyio.CancelScope() as self._scope:
                    await session.live(self._scope)
            except BaseException as raised:
                if not isinstance(raised, Exception | BaseExceptionGroup):
                    raise
                log.debug("MCP server %s: %s", self.config.name, self.redact(repr(raised)))
                error = raised
            finally:
                self._session = self._scope = None
        state = self.tracker.state
        if state is State.IDLE_CLOSING:
            return None
        worked, lost = state in ESTABLISHED, state in BROKEN_OFF
        ending = describe_end(
            self.config,
            error,
            attempt,
            session.stderr.lines,
            limit=limit,
            worked=worked,
            lost=lost,
            token_provider=self.token_provider,
            redact=self.redact,
        )
        text, own = map(self.redact.clean, (ending.problem.text, ending.problem.own))
        ending = replace(ending, problem=Problem(text, own))
        if not worked and self.negotiation.on_failed(error, attempt, hung_up=lost) and not self.closing.is_set():
            self.tracker.apply(Event.ATTEMPT_REPEATED)
            later = await self._run_session(self.tracker.connect_limit, is_retry=is_retry)
            return ending if later is not None and later.wrong_transport else later
        return ending
