"""Running requests of one connection: limits, deadlines and outcomes of calls, and the time of the last use.

Servers of the protocol before 2026 ask during a call without naming it. Over streamable HTTP the request arrives in the
call's stream. Elsewhere it belongs to the only running call. If calls of several users run, it is cancelled, because it
must never be shown to the wrong user.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bot.domain.elicitations import CANCELLED, MOST_ROUNDS, ElicitationRequest, ElicitationResult
from bot.domain.servers import ServerConfig
from bot.domain.tools import Tool
from bot.errors import CountersignError
from bot.i18n import ngettext_lazy
from bot.mcp.errors import RequestContext
from bot.mcp.redaction import Redaction
from bot.mcp.results import TEXT_LIMIT
from bot.ports import CallContext

if TYPE_CHECKING:
    from mcp import types

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Maximum number of calls that run on one server at the same time."""
LONGEST_WAIT = 10.0
"""Seconds that a call waits at most if the server asks for a pause."""
_DOUBTED_SECONDS = 600.0
"""Seconds in which an abandoned call may still cause an elicitation."""


@dataclass(frozen=True, slots=True)
class RequestNotSent:
    """The server never received the call, so it may be sent again. `gone`: the connection is unusable; otherwise it is
    suspect.
    """

    reason: str
    gone: bool


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The server refused the call for now, and did not run it. It asks to wait these seconds."""

    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The call was sent and its response is lost. Send it again only if it is repeatable (`Tool.repeatable`)."""

    reason: str


class Deadline:
    """Deadline of a call, from its timeout in seconds."""

    def __init__(self, seconds: float | None) -> None:
        self._at = math.inf if seconds is None else asyncio.get_running_loop().time() + seconds

    def cut(self, seconds: float) -> float:
        """Return `seconds`, or fewer if the deadline comes first."""
        return max(0.0, min(seconds, self._at - asyncio.get_running_loop().time()))


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Timeouts of a call in seconds: `silence` after the server's last message, `whole` in all. `output` is the length
    of the result's text in characters.
    """

    silence: float
    whole: float
    output: int = TEXT_LIMIT

    @classmethod
    def for_tool(cls, config: ServerConfig, tool: Tool, deadline: Deadline) -> CallLimits:
        """Return the limits of a tool, cut to a deadline."""
        silence = config.read_timeout(tool.original_name)
        whole = max(silence, config.tool_timeout_max)
        return cls(deadline.cut(silence), deadline.cut(whole), config.output_limit)


class CallDeadline:
    """Timeout for a block: `silence` seconds after the server's last message and `whole` seconds in all, without
    pauses. `paused_seconds` is the sum of the pauses. Raises TimeoutError out of the block.
    """

    def __init__(self, silence: float, whole: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._silence = silence
        self._began = self._now()
        self._ends = self._began + whole
        self.paused_seconds = 0.0
        self._pauses = 0
        self._stopped = 0.0
        self._limit = asyncio.timeout_at(self._next())

    @property
    def waited(self) -> float:
        """Seconds until the timeout, or until now, without pauses."""
        return (self._limit.when() or self._now()) - self._began - self.paused_seconds

    def restart_silence(self) -> None:
        """Restart the silence timeout because the server sent a message."""
        if not self._pauses:
            self._set(self._next())

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock within the block."""
        if not self._pauses:
            self._stopped = self._now()
            self._set(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                pause = self._now() - self._stopped
                self.paused_seconds += pause
                self._ends += pause
                self._set(self._next())

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._limit.__aexit__(kind, error, trace)

    def _next(self) -> float:
        return min(self._now() + self._silence, self._ends)

    def _set(self, when: float | None) -> None:
        # A message after the deadline must not extend it.
        with suppress(RuntimeError):
            self._limit.reschedule(when)


class ActiveCall:
    """One call. `owner` is its user and turn. `attempt` is its last request. `answered` is True once the server can no
    longer ask about it; `seconds_asked` is the time users took to answer.
    """

    def __init__(self, context: CallContext) -> None:
        self.context = context
        self.owner = context.author.principal, context.key.rpartition(":")[0]
        self.answered = True
        self.seconds_asked = 0.0
        self._task_context = contextvars.copy_context()
        self._asked = 0
        self._questions: set[asyncio.Future[ElicitationResult]] = set()
        self.attempt = RequestContext()
        self._time: CallDeadline | None = None

    @contextmanager
    def accept_elicitations(self, attempt: RequestContext, time: CallDeadline) -> Iterator[None]:
        """Accept elicitations for this call within the block only."""
        self.attempt, self._time, self.answered = attempt, time, False
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self._time = None
            self.answered = self.answered or not attempt.sent
            self.seconds_asked += time.paused_seconds
            for asking in self._questions:
                asking.cancel()

    async def ask(self, request: ElicitationRequest) -> ElicitationResult:
        """Ask the user of this call, in the call's context, with its deadline paused. Cancel the question if the call
        ends first.
        """
        if self._time is None or self._asked >= MOST_ROUNDS:
            return CANCELLED
        self._asked += 1
        asking = self._task_context.copy().run(asyncio.ensure_future, self.context.elicit(request))
        # Retrieve the exception, because the waiting call may be gone.
        asking.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        self._questions.add(asking)
        with self._time.pause(), self.attempt.count_elicitation():
            try:
                await asyncio.wait({asking})
            finally:
                asking.cancel()
                self._questions.discard(asking)
        if asking.cancelled() or not asking.done():
            return CANCELLED
        match asking.exception():
            case None:
                return asking.result()
            case CountersignError() as error:
                log.info("elicitation was not shown: %s", error)
            case error:
                log.error("elicitation failed", exc_info=error)
        return CANCELLED


_current: ContextVar[ActiveCall | None] = ContextVar("mcp_call", default=None)


class ActiveCalls:
    """Calls of one connection, at most `AT_ONCE` at the same time. Further calls wait."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._limit = AT_ONCE
        self._calls: list[ActiveCall] = []
        self._other_requests = 0
        self._abandoned: list[tuple[float, tuple[str, str]]] = []
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._logged_problems = 0

    @property
    def busy_reason(self) -> str:
        """Error text for a server at its concurrency limit."""
        return ngettext_lazy(
            "Server {server} is busy: a call to it is under way.",
            "Server {server} is busy: {n} calls to it are under way.",
            self._limit,
            server=self._server,
        )

    async def begin(self, context: CallContext, seconds: float | None = None) -> ActiveCall:
        """Wait for a free slot, at most `seconds`. Raises TimeoutError."""
        if self._slots.locked() or len(self._calls) >= self._limit:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
                while len(self._calls) >= self._limit:  # The limit may have become 1.
                    await self._slots.acquire()
        else:  # The usual case: a timeout would cost more than the rest.
            await self._slots.acquire()
        call = ActiveCall(context)
        self._calls.append(call)
        return call

    def end(self, call: ActiveCall) -> None:
        """Release the slot of a call."""
        self._calls.remove(call)
        if not call.answered:
            self._abandoned.append((asyncio.get_running_loop().time() + _DOUBTED_SECONDS, call.owner))
        if len(self._calls) < self._limit:
            self._slots.release()

    @contextmanager
    def other_request(self) -> Iterator[None]:
        """Mark a request that is not a tool call within the block: elicitations for it are cancelled."""
        self._other_requests += 1
        try:
            yield
        finally:
            self._other_requests -= 1

    def reset_elicitations(self) -> None:
        """Reset the elicitation state for a new session."""
        self._abandoned.clear()
        self._logged_problems = 0

    async def on_elicitation(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer an elicitation through the user it is for. Cancel it if there is none."""
        from bot.mcp.elicitation import (  # noqa: PLC0415 - it loads the MCP library, and a connection has that already
            UnsupportedElicitation,
            parse_request,
            result,
        )

        call = _current.get() or self._only_call()
        if call is None:
            return result(CANCELLED)
        try:
            return result(await call.ask(parse_request("", params, self._redact)))
        except UnsupportedElicitation as error:
            self._log_problem(f"asks for {error.request}")
            return result(CANCELLED)

    def _log_problem(self, problem: str) -> None:
        """Log a problem of an elicitation, at a limited rate because a server can send any number."""
        self._logged_problems += 1
        if self._logged_problems <= MOST_ROUNDS:
            log.warning("MCP server %s %s", self._server, problem)

    def _only_call(self) -> ActiveCall | None:
        """Return the oldest call if all are of the same user and turn. If not, run one call at a time from now on, so
        that later elicitations have an owner.
        """
        now = asyncio.get_running_loop().time()
        self._abandoned = [entry for entry in self._abandoned if entry[0] > now]
        owners = {call.owner for call in self._calls} | {owner for _, owner in self._abandoned}
        if self._calls and len(owners) == 1 and not self._other_requests:
            return self._calls[0]
        self._log_problem("sent an elicitation without a known user")
        if len(self._calls) > 1:
            self._limit = 1
        return None


class ActivityTracker:
    """Tracker of the use of one server. `clock` is in seconds; `on_end` is called after each request.

    `unresponsive` is set when a call has ended without an answer and no other request is running: the server should be
    pinged.
    """

    def __init__(self, clock: Callable[[], float], on_end: Callable[[], None]) -> None:
        self.running = 0
        self.unresponsive = asyncio.Event()
        self._clock = clock
        self._on_end = on_end
        self._last = clock()
        self._call_timed_out = False

    @contextmanager
    def track_user(self) -> Iterator[None]:
        """Count a request of a user within the block."""
        with self.track_internal():
            try:
                yield
            finally:
                self._last = self._clock()

    @contextmanager
    def track_internal(self) -> Iterator[None]:
        """Count an internal request within the block. It does not keep the connection open."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if self._call_timed_out and not self.running:
                self._call_timed_out = False
                self.unresponsive.set()
            self._on_end()

    def mark_unresponsive(self) -> None:
        """Record that the server did not answer in time."""
        self._call_timed_out = True

    @property
    def unused_since(self) -> float:
        """Clock time of the last use, or now while a request is running."""
        return self._clock() if self.running else self._last
