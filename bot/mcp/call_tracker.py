"""The calls that one server works on: how many there are at once, and whose question it is that it asks meanwhile.

Servers of the protocol before 2026 ask in the middle of a call and do not say of which. Over streamable HTTP a question
comes with the call it is about; elsewhere it belongs to the only call there is. Where there are several of different
people it is nobody's, because a question must never be shown to a stranger. Kept by the `connection`, asked by its
`session`.
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
"""Calls that one server works on at the same moment."""
_DOUBTED_SECONDS = 600.0
"""How long a server may still ask something about a call that was given up."""


@dataclass(frozen=True, slots=True)
class _Asker:
    """In whose name a call runs, and in which turn."""

    person: str
    turn: str


class ActiveCall:
    """One call. `answered` once the server can have nothing more to ask about it; `seconds_asked` is how long people
    were asked.
    """

    def __init__(self, context: CallContext) -> None:
        self.context = context
        self.asker = _Asker(context.author.principal, context.key.rpartition(":")[0])
        self.answered = True
        self.seconds_asked = 0.0
        self._surroundings = contextvars.copy_context()
        self._asked = 0
        self._asking: set[asyncio.Future[ElicitationResult]] = set()
        self._attempt = RequestContext()
        self._time: CallDeadline | None = None

    @contextmanager
    def sent(self, attempt: RequestContext, time: CallDeadline) -> Iterator[None]:
        """It is sent and waited for within the block. Nobody is asked anything about it afterwards."""
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
        """Ask the person in whose name it runs, in the surroundings of the call itself. Its time stands still. Where it
        ends before they have answered, nobody has.
        """
        if self._time is None or self._asked >= MOST_ROUNDS:
            return CANCELLED
        self._asked += 1
        asking = self._surroundings.copy().run(asyncio.ensure_future, self.context.elicit(asked))
        asking.add_done_callback(_looked_at)
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
    """The calls of one connection, not too many at once. More wait here."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._most = AT_ONCE
        self._calls: list[ActiveCall] = []
        self._beside = 0
        self._doubtful: list[tuple[float, _Asker]] = []
        self._room = asyncio.Semaphore(AT_ONCE)
        self._complaints = 0

    @property
    def busy(self) -> str:
        """What is said where there is no room."""
        which = "a call to it is" if self._most == 1 else f"{self._most} calls to it are"
        return f"Server {self._server} is busy: {which} under way."

    async def begin(self, context: CallContext, patience: float | None = None) -> ActiveCall:
        """Take room, after a wait of at most so many seconds for it. Raises TimeoutError."""
        if self._room.locked() or len(self._calls) >= self._most:
            async with asyncio.timeout(patience):
                await self._wait_for_room()
        else:  # as most calls find it, and a limit would cost more than all the rest here
            await self._room.acquire()
        call = ActiveCall(context)
        self._calls.append(call)
        return call

    def end(self, call: ActiveCall) -> None:
        """It needs no room any more."""
        self._calls.remove(call)
        if not call.answered:
            self._doubtful.append((asyncio.get_running_loop().time() + _DOUBTED_SECONDS, call.asker))
        if len(self._calls) < self._most:
            self._room.release()

    async def _wait_for_room(self) -> None:
        await self._room.acquire()
        while len(self._calls) >= self._most:  # it has become one at a time, and the other places are gone
            await self._room.acquire()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Something that is no call of a tool is wanted of the server within the block: nobody is asked about that."""
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1

    def begin_anew(self) -> None:
        """There is a new session, on which nothing is asked about calls of the last."""
        self._doubtful.clear()
        self._complaints = 0

    async def on_elicitation(self, params: types.ElicitRequestParams) -> types.ElicitResult:
        """Have a question answered by the person it is for, if there is one."""
        call = _current.get() or self._only_call()
        if call is None:
            return result(CANCELLED)
        try:
            return result(await call.ask(parse_request("", params, self._redact)))
        except UnsupportedElicitation as error:
            self._complain(f"asks for {error}")
            return result(CANCELLED)

    def _complain(self, what: str) -> None:
        """Say what is odd about a question, as often as a server may ask: it can ask without end."""
        self._complaints += 1
        if self._complaints <= MOST_ROUNDS:
            log.warning("MCP server %s %s", self._server, what)

    def _only_call(self) -> ActiveCall | None:
        """The oldest call, if all are of the same person and turn. If they are not, there is one at a time from now on,
        so that the server can ask the next time.
        """
        now = asyncio.get_running_loop().time()
        self._doubtful = [each for each in self._doubtful if each[0] > now]
        askers = {call.asker for call in self._calls} | {asker for _, asker in self._doubtful}
        if self._calls and len(askers) == 1 and not self._beside:
            return self._calls[0]
        self._complain("asks a person something, and it is not known whom")
        if len(self._calls) > 1:
            self._most = 1
        return None


def _looked_at(asking: asyncio.Future[ElicitationResult]) -> None:
    """Nobody may be there any more to hear that it failed."""
    if not asking.cancelled():
        asking.exception()


def _outcome(asking: asyncio.Future[ElicitationResult]) -> ElicitationResult:
    if asking.cancelled() or not asking.done():
        return CANCELLED
    match asking.exception():
        case None:
            return asking.result()
        case CountersignError() as error:
            log.info("a person was not asked what a server wants to know: %s", error)
        case error:
            log.error("a person could not be asked what a server wants to know", exc_info=error)
    return CANCELLED
