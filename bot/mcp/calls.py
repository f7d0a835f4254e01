"""Tool calls to one server: sending, deadline, outcome, and the call that an elicitation belongs to.

Calls use the session's `send_request`, because the library's `execute_call` drops a result that does not match the
tool's output schema.

Servers of the protocol before 2026 ask during a call without naming it. Over streamable HTTP the request arrives in the
call's stream. Elsewhere it belongs to the only running call. If calls of several users run, it is cancelled, because it
must never be shown to the wrong user.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import anyio
from mcp import Client, MCPError, types
from mcp.shared.dispatcher import ProgressFnT
from mcp.types import HEADER_MISMATCH
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, TypeAdapter, ValidationError

from bot.domain.characters import visible
from bot.domain.elicitations import CANCELLED, MOST_ROUNDS, ElicitationRequest, ElicitationResult, ElicitationResults
from bot.domain.messages import ToolCall
from bot.domain.servers import ServerConfig
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolKind, ToolOutcome
from bot.errors import CountersignError
from bot.i18n import LazyText, gettext_lazy, join_lazy, ngettext_lazy
from bot.mcp import elicitation, sdk
from bot.mcp.elicitation import UnsupportedElicitation, parse_request, result
from bot.mcp.errors import TOO_LARGE, UNREADABLE
from bot.mcp.failures import pause_text, refused_status
from bot.mcp.redaction import Redaction
from bot.mcp.results import TEXT_LIMIT, error_text, failed_result, tool_result
from bot.mcp.sdk import RequestContext
from bot.mcp.server_requests import request_of, result_of
from bot.ports import CallContext

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Maximum number of calls that run on one server at the same time."""
_DOUBTED_SECONDS = 600.0
"""Seconds in which an abandoned call may still cause an elicitation."""
IDEMPOTENCY_KEY = "countersign/idempotencyKey"
"""Key in `_meta` by which a server can recognize a repeated call."""
_Request = types.CallToolRequest | types.ReadResourceRequest | types.GetPromptRequest
_Answer = types.CallToolResult | types.ReadResourceResult | types.GetPromptResult | types.InputRequiredResult
_ANSWERS: Mapping[ToolKind, TypeAdapter[Any]] = {
    ToolKind.CALL: TypeAdapter(types.CallToolResult | types.InputRequiredResult),
    ToolKind.READ_RESOURCE: TypeAdapter(types.ReadResourceResult | types.InputRequiredResult),
    ToolKind.GET_PROMPT: TypeAdapter(types.GetPromptResult | types.InputRequiredResult),
}
_LONGEST_PROGRESS = 200
_LONGEST_QUOTE = 500
_MOST_VALUES = 20_000
_MAY_HAVE_RUN = frozenset((408, 500, 502, 504, *range(520, 530)))
"""HTTP statuses without a JSON-RPC error that do not tell whether the call ran."""
_NOT_RUN_FOR_NOW = frozenset((429, 503))
_SESSION_GONE = frozenset((404, 410))
_SESSION_CODES = frozenset((-32000, -32001))
_LOST_SESSION = re.compile(
    r"(?:^|[\"'>:]\s*)(?:"
    r"(?:no valid|no|invalid(?: or missing)?|missing(?: or invalid)?|unknown|unrecognized) (?:mcp[ -])?session\b|"
    r"(?:mcp[ -])?session(?:[ -]id)?(?: header)? (?:is |was |has |does )?"
    r"(?:not found|unknown|missing|invalid|expired|terminated|closed|not exist|required|not initialized)\b|"
    r"server not initialized\b)",
    re.IGNORECASE,
)
"""Sentences of transports about the session of the protocol, at the beginning of the text or of a field in it."""
BROKEN = (
    MCPError,
    ValidationError,
    RuntimeError,
    ValueError,
    OSError,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
)
"""Exceptions of a request, except a timeout."""


class CallDeadline:
    """Timeout for a block: `silence` seconds after the server's last message and `whole` seconds in all, without
    pauses. `still` is the sum of the pauses in seconds. Raises TimeoutError out of the block.
    """

    def __init__(self, silence: float, whole: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._silence = silence
        self._began = self._now()
        self._ends = self._began + whole
        self.still = 0.0
        self._pauses = 0
        self._stopped = 0.0
        self._limit = asyncio.timeout_at(self._next())

    @property
    def waited(self) -> float:
        """Seconds until the timeout, or until now, without pauses."""
        return (self._limit.when() or self._now()) - self._began - self.still

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
                still = self._now() - self._stopped
                self.still += still
                self._ends += still
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
        self.owner = _CallOwner(context.author.principal, context.key.rpartition(":")[0])
        self.answered = True
        self.seconds_asked = 0.0
        self._task_context = contextvars.copy_context()
        self._asked = 0
        self._questions: set[asyncio.Future[ElicitationResult]] = set()
        self._attempt = RequestContext()
        self._time: CallDeadline | None = None

    @contextmanager
    def accept_elicitations(self, attempt: RequestContext, time: CallDeadline) -> Iterator[None]:
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
        asking.add_done_callback(_retrieve_exception)
        self._questions.add(asking)
        with self._time.pause(), self._attempt.count_elicitation():
            try:
                await asyncio.wait({asking})
            finally:
                asking.cancel()
                self._questions.discard(asking)
        return _elicitation_result(asking)


_current: ContextVar[ActiveCall | None] = ContextVar("mcp_call", default=None)


class ActiveCalls:
    """Calls of one connection, at most `AT_ONCE` at the same time. Further calls wait."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._limit = AT_ONCE
        self._calls: list[ActiveCall] = []
        self._other_requests = 0
        self._abandoned: list[tuple[float, _CallOwner]] = []
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._logged_problems = 0

    @property
    def busy(self) -> str:
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
                await self._wait_for_slot()
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

    async def _wait_for_slot(self) -> None:
        await self._slots.acquire()
        while len(self._calls) >= self._limit:  # The limit may have become 1.
            await self._slots.acquire()

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
        call = _current.get() or self._only_call()
        if call is None:
            return result(CANCELLED)
        try:
            return result(await call.ask(parse_request("", params, self._redact)))
        except UnsupportedElicitation as error:
            self._log_problem(f"asks for {error.request}")
            return result(CANCELLED)

    def _log_problem(self, what: str) -> None:
        """Log a problem of an elicitation, at a limited rate because a server can send any number."""
        self._logged_problems += 1
        if self._logged_problems <= MOST_ROUNDS:
            log.warning("MCP server %s %s", self._server, what)

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


def _retrieve_exception(asking: asyncio.Future[ElicitationResult]) -> None:
    """Retrieve the exception, because the waiting call may be gone."""
    if not asking.cancelled():
        asking.exception()


def _elicitation_result(asking: asyncio.Future[ElicitationResult]) -> ElicitationResult:
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


async def send_call(
    client: Client,
    tool: Tool,
    call: ToolCall,
    active_call: ActiveCall,
    *,
    limits: CallLimits,
    redact: Redaction,
    folders: Sequence[str] = (),
) -> ToolOutcome | RequestNotSent | RetryLater | NoResponse:
    """Send a call and wait for its response within the limits, without the time for elicitations. On a timeout or a
    cancellation the server is notified. `folders` are those that it may list (`ServerConfig.roots`). Raises only
    CancelledError.
    """
    modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
    context, replies = active_call.context, active_call.context.replies
    if replies is not None and not modern and (why_not := elicitation.unvisited_reason(tool.server, replies)):
        return CallReturned(failed_result(call.id, why_not))
    request = _request(tool, call, context.key, replies if modern else None)
    time_left = CallDeadline(limits.silence, limits.whole)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        time_left.restart_silence()
        context.on_progress(progress_text(progress, total, message, redact))

    with sdk.record_request() as attempt, active_call.accept_elicitations(attempt, time_left):
        try:
            async with time_left:
                answer = await _answer(client, request, _ANSWERS[tool.kind], on_progress, folders)
        except TimeoutError:
            reason = gettext_lazy(
                "Server {server} did not answer within {seconds} s.",
                server=tool.server,
                seconds=f"{round(time_left.waited, 1):g}",
            )
            return CallOutcomeUnknown(reason) if attempt.sent else CallNotSent(reason)
        except BROKEN as error:
            log.debug("MCP server %s, tool %s: %s", tool.server, tool.original_name, redact(str(error)))
            if isinstance(error, MCPError) and not modern:
                active_call.answered = not sdk.is_stream_end(error)
                if (visits := _required_visits(error, tool, call, redact)) is not None:
                    return visits
            match _outcome_of_error(error, attempt, tool, client.protocol_version, redact):
                case CallNotSent() | RequestNotSent() | RetryLater() | NoResponse() | CallOutcomeUnknown() as verdict:
                    return replace(verdict, reason=redact(verdict.reason))
                case text:
                    return CallReturned(failed_result(call.id, redact(text)))
        active_call.answered = True
    convert = partial(_outcome, answer, tool, call, redact, limits.output)
    is_large = isinstance(answer, types.CallToolResult) and _is_large(answer.structured_content)
    return await asyncio.to_thread(convert) if is_large else convert()


def _is_large(value: Any) -> bool:
    """Return True if the conversion of this JSON value would block the event loop."""
    left = [value]
    for _ in range(_MOST_VALUES):
        if not left:
            return False
        match left.pop():
            case dict() as pairs:
                left.extend(pairs.values())
            case list() as items:
                left.extend(items)
            case _:
                pass
    return True


def _request(tool: Tool, call: ToolCall, key: str, replies: ElicitationResults | None) -> _Request:
    """Return the request of a call. The server's opaque state goes back unchanged, and into no other request."""
    meta = cast("types.RequestParamsMeta", {IDEMPOTENCY_KEY: key})
    if tool.kind is ToolKind.CALL:
        params = types.CallToolRequestParams(name=tool.original_name, arguments=dict(call.arguments), _meta=meta)
        request: _Request = types.CallToolRequest(params=params)
    else:
        request = request_of(tool, call)
    return request if replies is None else _with(request, elicitation.encode_results(replies), replies.state)


def _with(request: _Request, responses: types.InputResponses | None, state: str | None) -> _Request:
    params = request.params.model_copy(update={"input_responses": responses, "request_state": state})
    return request.model_copy(update={"params": params})


async def _answer(
    client: Client, request: _Request, answers: TypeAdapter[Any], progressed: ProgressFnT, folders: Sequence[str]
) -> _Answer:
    """Send a request, and repeat it with the state that the server returned, while the server asks for that alone or
    for folders that it may list.
    """
    rounds = 0
    while True:
        answer: _Answer = await client.session.send_request(request, answers, progress_callback=progressed)
        rounds += 1
        if not isinstance(answer, types.InputRequiredResult):
            return answer
        wanted = answer.input_requests or {}
        if wanted and not (folders and all(isinstance(item, types.ListRootsRequest) for item in wanted.values())):
            return answer
        if rounds > MOST_ROUNDS:
            return answer.model_copy(update={"input_requests": None})
        listed: types.InputResponses = {key: list_folders(folders) for key in wanted}
        request = _with(request, listed or None, answer.request_state)


def list_folders(folders: Sequence[str]) -> types.ListRootsResult:
    """Return folders as MCP roots."""
    paths = [Path(folder) for folder in folders]
    return types.ListRootsResult(
        roots=[types.Root(uri=FileUrl(path.as_uri()), name=path.name or str(path)) for path in paths]
    )


def _outcome(answer: _Answer, tool: Tool, call: ToolCall, redact: Redaction, limit: int) -> ToolOutcome:
    try:
        match answer:
            case types.CallToolResult():
                return CallReturned(tool_result(call.id, tool, answer, redact, limit))
            case types.InputRequiredResult():
                return elicitation.parse_input_required(answer, redact)
            case _:
                return CallReturned(result_of(call, tool, answer, redact, limit))
    except UnsupportedElicitation as error:
        return CallReturned(failed_result(call.id, _unsupported(tool, error)))


def _required_visits(error: MCPError, tool: Tool, call: ToolCall, redact: Redaction) -> ToolOutcome | None:
    """Return the pages that must be visited before the call, or None if the error does not ask for any."""
    try:
        return elicitation.visits_required(error, redact)
    except UnsupportedElicitation as refused:
        return CallReturned(failed_result(call.id, _unsupported(tool, refused)))


def _unsupported(tool: Tool, error: UnsupportedElicitation) -> LazyText:
    return gettext_lazy("Server {server} asks for {request}.", server=tool.server, request=error.request)


def progress_text(progress: float, total: float | None, message: str | None, redact: Redaction) -> str:
    """Return the text of a progress notification: `2/5 copying`, `copying` or `2`."""
    words = redact(visible(message or "")).replace("\n", " ").strip()
    if total:
        words = f"{progress:g}/{total:g} {words}".strip()
    return (words or f"{progress:g}")[:_LONGEST_PROGRESS]


def _outcome_of_error(
    error: Exception, attempt: RequestContext, tool: Tool, protocol: str, redact: Redaction
) -> CallNotSent | RequestNotSent | RetryLater | NoResponse | CallOutcomeUnknown | str:
    """Map an error of a call to its outcome. A text is a result that the model may read."""
    if attempt.refusal:
        return CallNotSent(attempt.refusal)
    unanswered = _not_sent_error(error, attempt, tool, protocol) or _unknown(error, attempt, tool)
    if unanswered is not None:
        return unanswered
    if isinstance(error, MCPError) and not sdk.is_http_error_stand_in(error):
        text, pause = error_text(error, redact), pause_text(attempt.retry_after)
        return join_lazy(f"{text.rstrip('.')}.", pause) if pause else text
    if attempt.status is None or attempt.status < 300:
        return f"Error calling MCP server: {error}"
    problem = refused_status(tool.server, attempt.status)
    if attempt.status in _NOT_RUN_FOR_NOW and attempt.retry_after is not None:
        text = gettext_lazy("Error calling MCP server: {problem}.", problem=problem)
        return RetryLater(join_lazy(text, pause_text(attempt.retry_after)), attempt.retry_after)
    return gettext_lazy("Error calling MCP server: {problem}", problem=problem)


def _not_sent_error(error: Exception, attempt: RequestContext, tool: Tool, protocol: str) -> RequestNotSent | None:
    if not attempt.sent:
        return RequestNotSent(_not_reached(tool.server, attempt.failure), gone=not attempt.failure)
    if protocol not in MODERN_PROTOCOL_VERSIONS and _is_session_lost(error, attempt):
        return RequestNotSent(gettext_lazy("Server {server} has forgotten the session.", server=tool.server), gone=True)
    if isinstance(error, MCPError) and error.code == HEADER_MISMATCH:
        reason = gettext_lazy(
            "Server {server} has changed the tool {tool}.", server=tool.server, tool=tool.original_name
        )
        return RequestNotSent(reason, gone=False)
    return None


def _not_reached(server: str, failure: str) -> LazyText:
    if not failure:
        return gettext_lazy("Server {server} could not be reached.", server=server)
    return gettext_lazy("Server {server} could not be reached: {reason}.", server=server, reason=failure)


def _is_session_lost(error: Exception, attempt: RequestContext) -> bool:
    """Return True if the server does not know the session, so that the call did not run.

    With sessions, 404 means that (MCP specification 2025-11-25, transports, session management). Many servers answer
    400 with a sentence, or with an error of the transport, instead. The newer protocol has no sessions.
    """
    if attempt.status in _SESSION_GONE:
        return True
    if attempt.status is None or not 400 <= attempt.status < 500:
        return False
    if isinstance(error, MCPError) and not sdk.is_http_error_stand_in(error):
        return error.code in _SESSION_CODES and _LOST_SESSION.search(error.message) is not None
    return attempt.status == 400 and _LOST_SESSION.search(attempt.error_body) is not None


def _unknown(error: Exception, attempt: RequestContext, tool: Tool) -> NoResponse | CallOutcomeUnknown | None:
    if attempt.failure:
        return NoResponse(
            gettext_lazy(
                "The connection to server {server} broke before it answered: {reason}.",
                server=tool.server,
                reason=attempt.failure,
            )
        )
    if not isinstance(error, MCPError) or sdk.is_unparsable_response(error):
        return CallOutcomeUnknown(
            gettext_lazy("The call was sent to server {server}, but its answer could not be read.", server=tool.server)
        )
    if why := _unreadable_reason(error):
        return CallOutcomeUnknown(
            gettext_lazy("Server {server} answered, but {reason}.", server=tool.server, reason=why)
        )
    return _without_response(error, attempt, tool)


def _without_response(error: MCPError, attempt: RequestContext, tool: Tool) -> NoResponse | None:
    if sdk.is_stream_end(error):
        return NoResponse(
            gettext_lazy("The connection to server {server} was lost before it answered.", server=tool.server)
        )
    if sdk.is_without_answer(error):
        return NoResponse(
            gettext_lazy(
                "Server {server} took the call, but did not answer in MCP. The call may have run.", server=tool.server
            )
        )
    if attempt.status is not None and attempt.status in _MAY_HAVE_RUN and sdk.is_http_error_stand_in(error):
        problem = refused_status(tool.server, attempt.status)
        return NoResponse(gettext_lazy("{problem}. The call may have arrived.", problem=problem))
    return None


def _unreadable_reason(error: MCPError) -> str:
    """Return the reason why a response could not be read; empty if the error is another one."""
    if sdk.is_event_too_large(error):
        return TOO_LARGE
    if error.message not in UNREADABLE:
        return ""
    said = visible(error.data)[:_LONGEST_QUOTE] if isinstance(error.data, str) else ""
    reason = UNREADABLE[error.message]
    return gettext_lazy("{reason}: {quote}", reason=reason, quote=said.rstrip(".")) if said else reason
