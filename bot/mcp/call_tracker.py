"""Running calls of one server, and the call that an elicitation belongs to.

Servers of the protocol before 2026 ask during a call without naming it. Over streamable HTTP the request arrives in the
call's stream. Elsewhere it belongs to the only running call. If calls of several users run, it is cancelled, because it
must never be shown to the wrong user.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mcp import types

from bot.domain.elicitations import CANCELLED, MOST_ROUNDS, ElicitationRequest, ElicitationResult
from bot.errors import CountersignError
from bot.mcp.call_deadline import CallDeadline
from bot.mcp.elicitation import UnsupportedElicitation, parse_request, result
from bot.mcp.redaction import Redaction
from bot.mcp.request_context import RequestContext
from bot.ports import CallContext

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Maximum number of calls that run on one server at the same time."""
_DOUBTED_SECONDS = 600.0
"""Seconds in which an abandoned call may still cause an elicitation."""


@dataclass(frozen=True, slots=True)
class _CallOwner:
    """User and turn of a call."""

    person: str
    turn: str


class ActiveCall:
    """One call. `answered` is True once the server can no longer ask about it; `seconds_asked` is the time users took
    to answer.
    """

    def __init__(self, context: CallContext) -> None:
        self.context = context
        self.asker = _CallOwner(context.author.principal, context.key.rpartition(":")[0])
        self.answered = True
        self.seconds_asked = 0.0
        self._surroundings = contextvars.copy_context()
        self._asked = 0
        self._asking: set[asyncio.Future[ElicitationResult]] = set()
        self._attempt = RequestContext()
        self._time: CallDeadline | None = None

    @contextmanager
    def sent(self, attempt: RequestContext, time: CallDeadline) -> Iterator[None]:
        """Accept elicitations for this call within the block only."""
        self._attempt, self._time, self.answered = attempt, time, False
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self._time = None
            self.answered = self.answered or not attempt.sent
            self.seconds_asked += time.still
            for asking in self._asking:
                asking.cancel()

    async def ask(self, asked: ElicitationRequest) -> ElicitationResult:
        """Ask the user of this call, in the call's context, with its deadline paused. Cancel the question if the call
        ends first.
        """
        if self._time is None or self._asked >= MOST_ROUNDS:
            return CANCELLED
        self._asked += 1
        asking = self._surroundings.copy().run(asyncio.ensure_future, self.context.elicit(asked))
        asking.add_done_callback(_retrieve_exception)
        self._asking.add(asking)
        with self._time.pause(), self._attempt.asking():
            try:
                await asyncio.wait({asking})
            finally:
                asking.cancel()
                self._asking.discard(asking)
        return _outcome(asking)


_current: ContextVar[ActiveCall | None] = ContextVar("mcp_call", default=None)


class ActiveCalls:
    """Calls of one connection, at most `AT_ONCE` at the same time. Further calls wait."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._most = AT_ONCE
        self._calls: list[ActiveCall] = []
        self._beside = 0
        self._doubtful: list[tuple[float, _CallOwner]] = []
        self._room = asyncio.Semaphore(AT_ONCE)
        self._complaints = 0

    @property
    def busy(self) -> str:
        """Error text for a server at its concurrency limit."""
        which = "a call to it is" if self._most == 1 else f"{self._most} calls to it are"
        return f"Server {self._server} is busy: {which} under way."

    async def begin(self, context: CallContext, patience: float | None = None) -> ActiveCall:
        """Wait for a free slot, at most `patience` seconds. Raises TimeoutError."""
        if self._room.locked() or len(self._calls) >= self._most:
            async with asyncio.timeout(patience):
                await self._wait_for_room()
        else:  # The usual case: a timeout would cost more than the rest.
            await self._room.acquire()
        call = ActiveCall(context)
        self._calls.append(call)
        return call

    def end(self, call: ActiveCall) -> None:
        """Release the slot of a call."""
        self._calls.remove(call)
        if not call.answered:
            self._doubtful.append((asyncio.get_running_loop().time() + _DOUBTED_SECONDS, call.asker))
        if len(self._calls) < self._most:
            self._room.release()

    async def _wait_for_room(self) -> None:
        await self._room.acquire()
        while len(self._calls) >= self._most:  # The limit may have become 1.
            await self._room.acquire()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Mark a request that is not a tool call within the block: elicitations for it are cancelled."""
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1

    def reset_elicitations(self) -> None:
        """Reset the elicitation state for a new session."""
        self._doubtful.clear()
        self._complaints = 0

    async def on_elicitation(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Answer an elicitation through the user it is for. Cancel it if there is none."""
        call = _current.get() or self._only_call()
        if call is None:
            return result(CANCELLED)
        try:
            return result(await call.ask(parse_request("", params, self._redact)))
        except UnsupportedElicitation as error:
            self._log_problem(f"asks for {error}")
            return result(CANCELLED)

    def _log_problem(self, what: str) -> None:
        """Log a problem of an elicitation, at a limited rate because a server can send any number."""
        self._complaints += 1
        if self._complaints <= MOST_ROUNDS:
            log.warning("MCP server %s %s", self._server, what)

    def _only_call(self) -> ActiveCall | None:
        """Return the oldest call if all are of the same user and turn. If not, run one call at a time from now on, so
        that later elicitations have an owner.
        """
        now = asyncio.get_running_loop().time()
        self._doubtful = [each for each in self._doubtful if each[0] > now]
        askers = {call.asker for call in self._calls} | {asker for _, asker in self._doubtful}
        if self._calls and len(askers) == 1 and not self._beside:
            return self._calls[0]
        self._log_problem("sent an elicitation without a known user")
        if len(self._calls) > 1:
            self._most = 1
        return None


def _retrieve_exception(asking: asyncio.Future[ElicitationResult]) -> None:
    """Retrieve the exception, because the waiting call may be gone."""
    if not asking.cancelled():
        asking.exception()


def _outcome(asking: asyncio.Future[ElicitationResult]) -> ElicitationResult:
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
