"""Tool calls to one server: requests, responses, and their outcomes.

Calls use the session's `send_request`, because the library's `execute_call` drops a result that does not match the
tool's output schema.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
from mcp import Client, MCPError, types
from mcp.shared.dispatcher import ProgressFnT
from mcp.types import HEADER_MISMATCH
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, TypeAdapter, ValidationError

from bot.domain.characters import visible
from bot.domain.elicitations import MOST_ROUNDS, ElicitationResults
from bot.domain.messages import ToolCall
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, Tool, ToolKind, ToolOutcome
from bot.i18n import LazyText, gettext_lazy, join_lazy
from bot.mcp import elicitation, sdk
from bot.mcp.active_calls import ActiveCall, CallDeadline, CallLimits, NoResponse, RequestNotSent, RetryLater
from bot.mcp.elicitation import UnsupportedElicitation
from bot.mcp.errors import TOO_LARGE, UNREADABLE, RequestContext, record_request
from bot.mcp.failures import pause_text, refused_status
from bot.mcp.redaction import Redaction
from bot.mcp.resource_tools import request_of, result_of
from bot.mcp.results import error_text, failed_result, tool_result

log = logging.getLogger(__name__)

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
_LONGEST_TEXT = 20_000
_MOST_VALUES = 20_000
_MAY_HAVE_RUN = frozenset((408, 499, *range(500, 600))) - {501, 503, 505, 511}
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

    with record_request() as attempt, active_call.accept_elicitations(attempt, time_left):
        try:
            async with time_left:
                answer = await _answer(client, request, _ANSWERS[tool.kind], on_progress, folders)
        except TimeoutError:
            reason = gettext_lazy(
                "Server {server} did not answer within {seconds} s.",
                server=tool.server,
                seconds=f"{round(time_left.waited, 1):g}",
            )
            reason = gettext_lazy("Error calling MCP server: {problem}", problem=reason)
            return CallOutcomeUnknown(reason) if attempt.sent else CallNotSent(reason)
        except BROKEN as error:
            log.debug("MCP server %s, tool %s: %s", tool.server, tool.original_name, redact(str(error)))
            if isinstance(error, MCPError) and not sdk.is_http_error_stand_in(error):
                attempt.code = error.code
                log.info("MCP server %s, tool %s: error %d", tool.server, tool.original_name, error.code)
            if isinstance(error, MCPError) and not modern:
                active_call.answered = not sdk.is_stream_end(error)
                if (visits := _required_visits(error, tool, call, redact)) is not None:
                    return visits
            verdict = _outcome_of_error(error, attempt, tool, client.protocol_version, redact)
            if isinstance(verdict, str):
                code = None if attempt.code is None else {"code": attempt.code}
                return CallReturned(replace(failed_result(call.id, redact(verdict)), structured=code))
            problem = redact(verdict.reason)
            if not isinstance(verdict, CallNotSent | RetryLater):
                problem = gettext_lazy("Error calling MCP server: {problem}", problem=problem)
            return replace(verdict, reason=problem)
        active_call.answered = True
    convert = partial(_outcome, answer, tool, call, redact, limits.output)
    is_large = isinstance(answer, types.CallToolResult) and _is_large(
        [answer.structured_content, *(part.text for part in answer.content if isinstance(part, types.TextContent))]
    )
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
            case str() as text if len(text) > _LONGEST_TEXT:
                return True
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
        reason = gettext_lazy("Server {server} could not be reached.", server=tool.server)
        if attempt.failure:
            reason = gettext_lazy(
                "Server {server} could not be reached: {reason}.", server=tool.server, reason=attempt.failure
            )
        return RequestNotSent(reason, gone=not attempt.failure)
    if protocol not in MODERN_PROTOCOL_VERSIONS and _is_session_lost(error, attempt):
        return RequestNotSent(gettext_lazy("Server {server} has forgotten the session.", server=tool.server), gone=True)
    if isinstance(error, MCPError) and error.code == HEADER_MISMATCH:
        reason = gettext_lazy(
            "Server {server} has changed the tool {tool}.", server=tool.server, tool=tool.original_name
        )
        return RequestNotSent(reason, gone=False)
    return None


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
    why: str = UNREADABLE.get(error.message, "")
    quote = visible(error.data)[:_LONGEST_QUOTE] if isinstance(error.data, str) else ""
    if sdk.is_event_too_large(error):
        why = TOO_LARGE
    elif why and quote:
        why = gettext_lazy("{reason}: {quote}", reason=why, quote=quote.rstrip("."))
    if why:
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
