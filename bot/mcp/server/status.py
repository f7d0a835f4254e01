"""Life of one server: its states and the table of their transitions, its status and capabilities.

`next_state` is the only way from one state to another, and `ServerStatusTracker` calls it. The owner task of the
connection reports attempts, sessions and their ends. Calls, the health check and the transport report `SESSION_EVENTS`
about the live session. These take effect at once, so that the call that reports a loss is not sent on the same session
again. Everything else about a connection is derived from its state.

`SyncNotifier` delivers fetched capabilities to the store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from bot.domain.metrics import SessionChanged, SessionEvent
from bot.domain.pins import Pinned
from bot.domain.servers import (
    LAST_HANDSHAKE_VERSION,
    CachedCapabilities,
    ServerCapabilities,
    ServerConfig,
    ServerSnapshot,
    ServerStatus,
    SyncStatus,
)
from bot.domain.tools import CallNotSent, Tool, ToolKind
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import definition_fingerprint
from bot.mcp.errors import NO_PROBLEM, Problem
from bot.mcp.review import ToolPinning, apply_definition
from bot.mcp.server.output import ServerLog, StrayLineCounter
from bot.mcp.server.retry import CallBreaker, CircuitBreaker

if TYPE_CHECKING:
    from bot.mcp.server.dependencies import ConnectionDependencies

log = logging.getLogger(__name__)

ASK_FIX = gettext_lazy("set its protocol to {version}", version=LAST_HANDSHAKE_VERSION)

PLAIN = "JSON-RPC 2.0"
"""Protocol of a server without MCP, for display."""

OnSynced = Callable[[str, ServerCapabilities], Awaitable[None]]
OnSyncFailed = Callable[[str, str], Awaitable[None]]
OnReport = Callable[[str, ServerCapabilities | str], None]
"""Receiver of a server's id and the capabilities, or the problem of a failed sync."""
_LONGEST_DELIVERY = 30.0


class State(Enum):
    """State of one server."""

    UNUSED = auto()
    """No attempt to connect has begun."""
    DISCONNECTED = auto()
    """An admin has disconnected it: only an admin connects it."""
    CONNECTING = auto()
    DROPPED = auto()
    """The other side has closed the connection before it was established."""
    READY = auto()
    """Requests may be sent."""
    SUSPECT = auto()
    """A request has failed: calls wait until the tools have been listed again."""
    IDLE_CLOSING = auto()
    """The session is being closed, because the server is unused."""
    LOST = auto()
    """The other side has closed an established connection, or a call has found it unusable."""
    ENDING = auto()
    """The session is being closed, by request or after an error."""
    IDLE = auto()
    """The session was closed, because the server was unused: the next use connects."""
    BACKOFF = auto()
    """An attempt has failed, or a connection was lost: the next attempt is planned."""
    EXHAUSTED = auto()
    """No attempts are left: the next use starts one."""
    SIGN_IN_REQUIRED = auto()
    """The server has rejected the bot: calls do not connect. An attempt is planned, and a sign-in starts one."""
    CLOSED = auto()
    """The owner task has ended."""


class Event(Enum):
    """Event in the life of one server."""

    ATTEMPT_STARTED = auto()
    ATTEMPT_REPEATED = auto()
    """The attempt has failed, and goes on: with the older transport, or once more."""
    CONNECTED = auto()
    """The server has answered, and its tools are listed."""
    TOOLS_LISTED = auto()
    REQUEST_FAILED = auto()
    """A request has failed in a way that may be the end of the connection."""
    CONNECTION_LOST = auto()
    UNUSED_TOO_LONG = auto()
    SESSION_ENDED = auto()
    """The owner task begins to close the client."""
    IDLE_CLOSED = auto()
    RETRY_PLANNED = auto()
    RETRIES_EXHAUSTED = auto()
    SIGN_IN_REJECTED = auto()
    CLOSED = auto()


SESSION_EVENTS = frozenset(
    (
        Event.TOOLS_LISTED,
        Event.REQUEST_FAILED,
        Event.CONNECTION_LOST,
        Event.UNUSED_TOO_LONG,
        Event.SESSION_ENDED,
    )
)
"""Events of a live session, which users do not see. Any task may report them."""

ATTEMPTING = frozenset((State.CONNECTING, State.DROPPED))
SERVING = frozenset((State.READY, State.SUSPECT))
"""States in which the owner task keeps an established session."""
_CLOSING = frozenset((State.IDLE_CLOSING, State.LOST, State.ENDING))
ESTABLISHED = SERVING | _CLOSING
"""States of a session between its first listing and its end."""
SESSION_OVER = _CLOSING | {State.DROPPED}
"""States of a session that has ended, or is about to."""
BROKEN_OFF = frozenset((State.DROPPED, State.LOST))
"""States after the other side has closed the connection."""
BEFORE_FIRST_SESSION = ATTEMPTING | {State.UNUSED}
"""States before the first session is established, and those of a later attempt."""
HIDING_TOOLS = frozenset((State.SIGN_IN_REQUIRED, State.DISCONNECTED, State.CLOSED))
"""States in which the tools are not offered until the next connection, and calls do not make one."""
_DOUBTFUL = frozenset((State.SUSPECT, State.LOST, State.ENDING))
"""States of an established session that has failed, or may have."""
_WAITING = (
    State.UNUSED,
    State.DISCONNECTED,
    State.IDLE,
    State.BACKOFF,
    State.EXHAUSTED,
    State.SIGN_IN_REQUIRED,
)
"""States without a session. The owner task may not have started."""

TRANSITIONS: dict[tuple[State, Event], State] = {
    **{(state, Event.ATTEMPT_STARTED): State.CONNECTING for state in (*_WAITING, State.CONNECTING)},
    **{(state, Event.ATTEMPT_REPEATED): State.CONNECTING for state in ATTEMPTING},
    **{(state, event): state for state in ATTEMPTING for event in (Event.TOOLS_LISTED, Event.REQUEST_FAILED)},
    **{(state, Event.CONNECTION_LOST): State.DROPPED for state in ATTEMPTING},
    (State.CONNECTING, Event.CONNECTED): State.READY,
    (State.DROPPED, Event.CONNECTED): State.LOST,
    **{
        (state, event): target
        for state in SERVING
        for event, target in (
            (Event.TOOLS_LISTED, State.READY),
            (Event.REQUEST_FAILED, State.SUSPECT),
            (Event.CONNECTION_LOST, State.LOST),
            (Event.UNUSED_TOO_LONG, State.IDLE_CLOSING),
            (Event.SESSION_ENDED, State.ENDING),
        )
    },
    # A loss while the client is closed counts as a loss: the server may have failed.
    **{(state, Event.CONNECTION_LOST): State.LOST for state in _CLOSING},
    **{
        (state, event): state
        for state in _CLOSING
        for event in (Event.TOOLS_LISTED, Event.REQUEST_FAILED, Event.UNUSED_TOO_LONG)
    },
    (State.IDLE_CLOSING, Event.SESSION_ENDED): State.IDLE_CLOSING,
    (State.LOST, Event.SESSION_ENDED): State.LOST,
    (State.IDLE_CLOSING, Event.IDLE_CLOSED): State.IDLE,
    **{
        (state, event): target
        for state in (*ATTEMPTING, State.LOST, State.ENDING)
        for event, target in (
            (Event.RETRY_PLANNED, State.BACKOFF),
            (Event.RETRIES_EXHAUSTED, State.EXHAUSTED),
            (Event.SIGN_IN_REJECTED, State.SIGN_IN_REQUIRED),
        )
    },
    **dict.fromkeys(((state, Event.CLOSED) for state in State), State.CLOSED),
}
"""State after each event. A pair that is missing cannot happen."""


_STATUS: dict[State, ServerStatus] = {
    State.UNUSED: ServerStatus.PENDING,
    State.IDLE: ServerStatus.IDLE,
    **dict.fromkeys(ATTEMPTING, ServerStatus.CONNECTING),
    **dict.fromkeys(ESTABLISHED, ServerStatus.CONNECTED),
    State.BACKOFF: ServerStatus.FAILED,
    State.EXHAUSTED: ServerStatus.FAILED,
    State.SIGN_IN_REQUIRED: ServerStatus.AUTH_REQUIRED,
    State.DISCONNECTED: ServerStatus.DISCONNECTED,
    State.CLOSED: ServerStatus.DISCONNECTED,
}


class IllegalTransition(Exception):
    """Event that cannot happen in this state."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{event.name} cannot happen in the state {state.name}")


def next_state(state: State, event: Event) -> State:
    """Return the state after an event. Raises IllegalTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None


def status_of(state: State, *, known: bool) -> ServerStatus:
    """Return the status that users see. `known`: the capabilities have been fetched at least once."""
    if state is State.UNUSED and known:
        return ServerStatus.IDLE
    return _STATUS[state]


class SyncNotifier:
    """Notifier that delivers the newest result of each server, one server after the other. A failed delivery is
    logged.
    """

    def __init__(self, on_synced: OnSynced | None = None, on_sync_failed: OnSyncFailed | None = None) -> None:
        self._on_synced = on_synced
        self._on_sync_failed = on_sync_failed
        self._queue: dict[str, ServerCapabilities | str] = {}
        self._wakeup = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the delivery task."""
        if self._task is None:
            self._task = asyncio.create_task(self._deliver_all(), name="mcp:reports")

    def report(self, server_id: str, result: ServerCapabilities | str) -> None:
        """Queue the capabilities of a server, or the problem of a failed sync."""
        self._queue[server_id] = result
        self._wakeup.set()

    def drop_result(self, server_id: str) -> None:
        """Drop the queued result of a removed or changed server."""
        self._queue.pop(server_id, None)

    async def close(self, limit: float) -> None:
        """Deliver the queued results, at most `limit` seconds."""
        self._ending = True
        self._wakeup.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=limit)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _deliver_all(self) -> None:
        while self._queue or not self._ending:
            if self._queue:
                server_id = next(iter(self._queue))
                await self._deliver(server_id, self._queue.pop(server_id))
            else:
                self._wakeup.clear()
                await self._wakeup.wait()

    async def _deliver(self, server_id: str, result: ServerCapabilities | str) -> None:
        try:
            async with asyncio.timeout(_LONGEST_DELIVERY):
                if isinstance(result, str):
                    if self._on_sync_failed is not None:
                        await self._on_sync_failed(server_id, result)
                elif self._on_synced is not None:
                    await self._on_synced(server_id, result)
        except Exception as error:  # noqa: BLE001 - whatever it is, the connections go on
            log.warning("capabilities of MCP server %s were not stored: %s", server_id, type(error).__name__)


class ServerStatusTracker:
    """State of one server, its status for users, and its capabilities.

    `synced` are its cached capabilities, `pinned` their pins. A `disconnected` server stays so until an admin connects
    it. `notifier` receives its synced capabilities. The sessions of one server share the breakers and the logs of
    `parent`, the tracker of its own one.
    `asks_in_older_way`: the server tried to ask a user by a request that its protocol does not have.
    `retries_exhausted` is True if more attempts have failed than the limit allows.
    Every change that users can see wakes the waiting tasks.
    """

    def __init__(
        self,
        config: ServerConfig,
        synced: CachedCapabilities,
        pinned: Pinned | None,
        shared: ConnectionDependencies,
        *,
        disconnected: bool,
        notifier: OnReport | None = None,
        parent: ServerStatusTracker | None = None,
    ) -> None:
        self.config = config
        self.asks_in_older_way = False
        self.retries_exhausted = False
        self.pinning = ToolPinning(config.name, shared.review, pinned)
        if parent is None:
            timing, clock = shared.timing, shared.clock
            self.breaker, self.calls = CircuitBreaker(timing.tripping, clock), CallBreaker(timing, clock)
            self.server_log, self.stray_lines = ServerLog(clock), StrayLineCounter(config.name, clock)
        else:
            self.breaker, self.calls = parent.breaker, parent.calls
            self.server_log, self.stray_lines = parent.server_log, parent.stray_lines
        self._synced = _with_definition(synced, config)
        self.pinning.set_known_tools(self._synced.capabilities.definitions)
        self._state = State.DISCONNECTED if disconnected else State.UNUSED
        self._problem = self._call_problem = NO_PROBLEM
        self._connected_at: float | None = None
        # Remembers a state that hides the tools, until the next connection.
        self._hidden_by: State | None = self._state if self._state in HIDING_TOOLS else None
        self._notifier: OnReport | None = notifier or shared.sync_notifier.report
        self._observe = shared.observe
        self._changed = asyncio.Event()

    @property
    def state(self) -> State:
        """Current state."""
        return self._state

    @property
    def snapshot(self) -> ServerSnapshot:
        """Status and capabilities for display."""
        capabilities = self._synced.capabilities
        return ServerSnapshot(
            self.config,
            self.status,
            self._shown_problem.text,
            own_problem=self._shown_problem.own,
            connected_at=self._connected_at,
            sync=self._synced.status,
            synced_at=self._synced.at,
            tool_count=len(capabilities.tools),
            server_version=capabilities.server_version,
            protocol=capabilities.protocol,
            is_retrying=self._state is State.BACKOFF and not self.retries_exhausted,
            left_out=capabilities.left_out,
        )

    @property
    def status(self) -> ServerStatus:
        """Status word. A connected server has failed if it answers calls with HTTP errors."""
        status = self._connection_status
        return ServerStatus.FAILED if status is ServerStatus.CONNECTED and self.calls.is_doubted else status

    @property
    def problem(self) -> str:
        """Sentence with cause and fix; empty without a problem."""
        return self._shown_problem.text

    @property
    def left(self) -> float:
        """Seconds for which the server is left alone, because it keeps failing or asks for it."""
        return max(self.breaker.left, self.calls.left)

    @property
    def synced(self) -> CachedCapabilities:
        """Cached capabilities and their time."""
        return self._synced

    @property
    def known(self) -> bool:
        """True if the capabilities have been fetched at least once."""
        return self._synced.at is not None

    @property
    def has_no_tools_of_definition(self) -> bool:
        """True if the tools are not known, or are those of an earlier definition of the server."""
        return not self.known or self._synced.capabilities.definition != definition_fingerprint(self.config)

    @property
    def connect_limit(self) -> float:
        """Current connect timeout in seconds."""
        return self.config.connect_seconds(known=self.known)

    @property
    def is_callable(self) -> bool:
        """True if its tools may be called: the server is connected, or its tools are known and a connection may be
        made.

        A failed server stays callable and is connected by the call, so that the offered tools do not change too
        often. With an open circuit breaker it is not callable.
        """
        if self._state in ESTABLISHED:
            return not self.calls.left
        return self.known and self._hidden_by is None and not self.left

    @property
    def is_up(self) -> bool:
        """True if its tools may be called and nothing has failed since the last connection."""
        return self.is_callable and not self.problem and self._state not in _DOUBTFUL

    def rejection(self, tool: Tool) -> CallNotSent | None:
        """Return the rejection of a call of an offered tool that must not be called now; None if it may."""
        if tool.kind is not ToolKind.CALL:
            return None
        listed = self._synced.capabilities.tools
        current = next((entry for entry in listed if entry.original_name == tool.original_name), tool)
        if current.name in self.pinning.withheld:
            reason = gettext_lazy(
                "{tool} is new or has changed, and an admin has to review it first: {command}.",
                tool=tool.name,
                command=f"`/mcp review {tool.server}`",
            )
            return CallNotSent(reason, unreviewed=True)
        if current != tool and current.definition != tool.definition:
            return CallNotSent(
                gettext_lazy("{tool} has changed since it was asked for. Ask for it once more.", tool=tool.name)
            )
        return None

    async def wait_for_change(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def detach(self) -> None:
        """Stop storing capabilities, because the server is removed or replaced."""
        self._notifier = None
        self.notify()

    @property
    def is_detached(self) -> bool:
        """True if the server is removed or replaced."""
        return self._notifier is None

    def update_cache(self, synced: CachedCapabilities) -> None:
        """Take over capabilities that another process has synced. Those of a live connection take precedence."""
        if self._state in ESTABLISHED or (synced.at or 0.0) <= (self._synced.at or 0.0):
            return
        self._synced = _with_definition(synced, self.config)
        self.pinning.set_current_tools(self._synced.capabilities.definitions)
        if self._state is State.UNUSED:
            self.notify()

    def learn_pins(self, pinned: Pinned | None) -> bool:
        """Take over the pins. Return True if offered tools are withheld now."""
        fewer = self.pinning.set_pins(pinned)
        self.notify()
        return fewer

    def report(self, event: Event) -> None:
        """Record an event of the live session, from any task. Users see no difference."""
        assert event in SESSION_EVENTS
        self._state = next_state(self._state, event)

    def record_call_error(self, problem: Problem, retry_after: float) -> None:
        """Record a call that was answered with an HTTP error of the server, which asks to wait these seconds."""
        before = self._shown
        self._call_problem = problem
        self.calls.record_failure()
        if retry_after:
            self.calls.hold(retry_after)
        self._show(before)

    def record_answered_call(self) -> None:
        """Record a call that was answered."""
        before = self._shown
        self.calls.record_success()
        self._show(before)

    def record_older_elicitation(self) -> None:
        """Record that the server tried to ask a user as in the older protocol."""
        if not self.asks_in_older_way:
            log.warning("MCP server %s asks users in the older way. Fix: %s", self.config.name, ASK_FIX)
        self.asks_in_older_way = True

    def apply(self, event: Event, problem: Problem = NO_PROBLEM) -> None:
        """Record an event of an attempt, or the end of a connection. `problem` is the reason of a failure."""
        if event in (Event.ATTEMPT_STARTED, Event.ATTEMPT_REPEATED):
            # Users see the last problem until the attempt has ended.
            problem = self._problem
        before, status = self._shown, self._connection_status
        self._state, self._problem, self._connected_at = next_state(self._state, event), problem, None
        if self._state in HIDING_TOOLS:
            self._hidden_by = self._state
        self._count(status)
        self._show(before)

    def record_connection(self, capabilities: ServerCapabilities) -> None:
        """Record the connection and its tools. Other capabilities stay."""
        before, status = self._shown, self._connection_status
        self._take_tools(capabilities)
        self._state = next_state(self._state, Event.CONNECTED)
        self._problem, self._connected_at, self._hidden_by = NO_PROBLEM, time.time(), None
        self.breaker.record_success()
        self._count(status)
        self._show(before)

    def tools_listed(self, capabilities: ServerCapabilities) -> None:
        """Record the tools of another listing. Other capabilities stay."""
        before = self._shown
        self._take_tools(capabilities)
        self._show(before)

    def record_sync_start(self) -> None:
        """Record the start of a sync."""
        self._synced = replace(self._synced, status=SyncStatus.SYNCING)

    def sync_succeeded(self, capabilities: ServerCapabilities) -> None:
        """Record all capabilities."""
        self._synced = CachedCapabilities(SyncStatus.SYNCED, capabilities, time.time())
        if self._notifier is not None:
            self._notifier(self.config.id, capabilities)
        self.notify()

    def sync_confirmed(self) -> None:
        """Record a sync without changes."""
        self._synced = replace(self._synced, status=SyncStatus.SYNCED, at=time.time())
        self.notify()

    def sync_failed(self, problem: str) -> None:
        """Record a failed sync."""
        self._synced = replace(self._synced, status=SyncStatus.SYNC_FAILED, problem=problem)
        if self._notifier is not None:
            self._notifier(self.config.id, problem)
        self.notify()

    def _take_tools(self, capabilities: ServerCapabilities) -> None:
        self._synced = replace(self._synced, capabilities=capabilities)
        self.pinning.set_current_tools(capabilities.definitions)
        wanted = self.config.auto_context_tool
        if wanted and all(tool.original_name != wanted for tool in capabilities.tools):
            log.warning("MCP server %s has no tool %s for its auto_context_tool", self.config.name, wanted)

    @property
    def _connection_status(self) -> ServerStatus:
        return status_of(self._state, known=self.known)

    @property
    def _shown_problem(self) -> Problem:
        return self._problem if self._problem.text or not self.calls.is_doubted else self._call_problem

    @property
    def _shown(self) -> tuple[ServerStatus, str, int]:
        count = len(self._synced.capabilities.tools) if self._state in ESTABLISHED else 0
        return self.status, self.problem, count

    def _show(self, before: tuple[ServerStatus, str, int]) -> None:
        """Wake all waiting tasks, and log what users see if it has changed."""
        self.notify()
        if before == self._shown:
            return
        name, capabilities = self.config.name, self._synced.capabilities
        match self.status:
            case ServerStatus.CONNECTED:
                log.info(
                    "MCP server %s: connected, tools: %d, %s", name, len(capabilities.tools), capabilities.protocol
                )
            case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED if self.problem != before[1]:
                log.warning("MCP server %s: %s", name, self.problem)
            case status:
                log.debug("MCP server %s: %s", name, status)

    def _count(self, before: ServerStatus) -> None:
        """Count the session event of a status change."""
        event: SessionEvent
        was_connected = before is ServerStatus.CONNECTED
        match self._connection_status:
            case ServerStatus.CONNECTED if not was_connected:
                event = "created"
            case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED:
                event = "error"
            case ServerStatus.DISCONNECTED | ServerStatus.IDLE if was_connected:
                event = "closed"
            case _:
                return
        self._observe(SessionChanged(self.config.name, event))


def _with_definition(synced: CachedCapabilities, config: ServerConfig) -> CachedCapabilities:
    tools = tuple(apply_definition(tool, config) for tool in synced.capabilities.tools)
    instructions = synced.capabilities.instructions if config.use_instructions else None
    return replace(synced, capabilities=replace(synced.capabilities, tools=tools, instructions=instructions))
