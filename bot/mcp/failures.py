"""Failures of servers, sessions and requests, as sentences with cause and fix.

Texts may hold secrets: the connection redacts them.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx2
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, ErrorData
from pydantic import BaseModel, ValidationError

from bot.domain.servers import HttpTransport, Protocol, ServerConfig, ServerStatus, StdioTransport
from bot.domain.tools import ToolKind
from bot.i18n import LazyText, gettext_lazy, join_lazy
from bot.mcp.errors import (
    CONNECTION_BROKE,
    NOT_RPC,
    RESULT_IS_NO_OBJECT,
    RESULT_IS_NULL,
    UNREADABLE,
    InvalidDefinition,
    Problem,
    RequestContext,
    cause_and_fix,
    current_request,
    split_fix,
    status_phrase,
)
from bot.mcp.oauth.tokens import TokenProvider
from bot.mcp.redaction import Redaction, public_address
from bot.mcp.results import error_text
from bot.mcp.sdk import (
    http_error_stand_in,
    is_http_error_stand_in,
    is_unparsable_response,
    is_without_answer,
    unsupported_version,
)

_QUOTED_LINES = 3
_LONGEST_QUOTE = 500
_LONGEST_VERSION = 40
_TRY_LATER = gettext_lazy("try again later, or check its log")
_CHECK_NAME = gettext_lazy("check the name and what it needs")
_LATE = {
    ToolKind.READ_RESOURCE: gettext_lazy("Server {server} did not give the resource within {seconds} s.").message,
    ToolKind.GET_PROMPT: gettext_lazy("Server {server} did not give the prompt within {seconds} s.").message,
}
_FAILED = {
    ToolKind.READ_RESOURCE: gettext_lazy("Server {server} did not give the resource: {reason}.").message,
    ToolKind.GET_PROMPT: gettext_lazy("Server {server} did not give the prompt: {reason}.").message,
}
_OTHER_FORM = gettext_lazy("its answer is not in the form that the protocol wants")
_OLDER = gettext_lazy(
    "check its log; if it speaks an older version of MCP, set its protocol to that, such as {version}",
    version=Protocol.V2025_06_18,
)
_MAY_BE_VERSION = re.compile("400 |426 |.*protocol.?version", re.IGNORECASE | re.DOTALL)
_INVALID = frozenset((INVALID_PARAMS, INVALID_REQUEST))
_REFUSED = frozenset((401, 403))
NOT_THIS_TRANSPORT = frozenset((400, 404, 405))
"""HTTP statuses by which a server rejects another transport (MCP specification 2026-07-28, basic/transports)."""
_MARKUP = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_MESSAGE_KEYS = ("error", "error_description", "message", "detail", "title")
"""Keys of the message in the JSON of an HTTP error, the first one first."""
_LONGEST_RETRY_AFTER = 900.0
"""Seconds for which a server is left alone at most because it asks for that."""


def root_cause(error: BaseException) -> BaseException:
    """Return the first error inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def named_version(error: BaseException | None, attempt: RequestContext, tried: str) -> Protocol | None:
    """Return the newest version of the older era that an error names and that is older than the one that was `tried`;
    None if it names none.
    """
    cause = None if error is None else root_cause(error)
    said = f"{cause.message} {cause.data!r}" if isinstance(cause, MCPError) else ""
    known = (version for version in Protocol if version.begins_with_handshake and version < tried)
    return max((version for version in known if version in said + attempt.error_body), default=None)


def is_plain_json_rpc(error: BaseException | None) -> bool:
    """Return True if a server answered the first request of MCP in JSON-RPC, but not in MCP."""
    match None if error is None else root_cause(error):
        case MCPError(code=code, message=message) as cause:
            is_unknown = code == METHOD_NOT_FOUND and not is_http_error_stand_in(cause)
            return is_unknown or message in (RESULT_IS_NULL, RESULT_IS_NO_OBJECT)
        case cause:
            return isinstance(cause, ValidationError)


def refused_status(server: str, status: int) -> LazyText:
    """Describe an HTTP error status, with a fix where one is known."""
    match status:
        case 401 | 403:
            fix = gettext_lazy("check the headers of server {server}", server=server)
        case 404 | 405 | 410:
            fix = gettext_lazy(
                "check the url of server {server}, and that its transport is the right one", server=server
            )
        case _:
            return gettext_lazy("MCP server request failed: {status}", status=status_phrase(status))
    return cause_and_fix(gettext_lazy("MCP server request failed: {status}.", status=status_phrase(status)), fix)


def timeout_message(config: ServerConfig, stderr_lines: tuple[str, ...], limit: float) -> Problem:
    """Describe a timeout while connecting."""
    fix = (
        gettext_lazy("check that it speaks MCP on its standard output, or raise its connect_timeout")
        if isinstance(config.transport, StdioTransport)
        else gettext_lazy("check that an MCP server listens at its url, or raise its connect_timeout")
    )
    cause = gettext_lazy("Server {server} did not answer within {seconds} s.", server=config.name, seconds=f"{limit:g}")
    return Problem.quoting(join_lazy(cause, _stderr_quote(stderr_lines)), cause, fix)


def connection_lost(config: ServerConfig, stderr_lines: tuple[str, ...]) -> Problem:
    """Describe the loss of an established connection."""
    cause = gettext_lazy("The connection to server {server} was lost.", server=config.name)
    rest = gettext_lazy("It is made again when it is needed.")
    return Problem(join_lazy(cause, _stderr_quote(stderr_lines), rest), join_lazy(cause, rest))


def failed_listing(config: ServerConfig, error: Exception, redact: Redaction) -> LazyText:
    """Describe a failed listing of a connected server's capabilities."""
    cause = gettext_lazy(
        "Server {server} did not say what it offers: {reason}.",
        server=config.name,
        reason=_error_text(config, error, redact),
    )
    return cause_and_fix(cause, gettext_lazy("check its log"))


def failed_request(
    kind: ToolKind, config: ServerConfig, error: Exception, redact: Redaction
) -> tuple[LazyText, LazyText]:
    """Return cause and fix for a resource (`READ_RESOURCE`) or a prompt (`GET_PROMPT`) that could not be fetched."""
    if isinstance(error, TimeoutError):
        return LazyText(_LATE[kind], "", {"server": config.name, "seconds": f"{config.tool_timeout:g}"}), _TRY_LATER
    reason = _error_text(config, error, redact)
    return LazyText(_FAILED[kind], "", {"server": config.name, "reason": reason}), _CHECK_NAME


def _error_text(config: ServerConfig, error: Exception, redact: Redaction) -> str:
    match error:
        case TimeoutError():
            return gettext_lazy("no answer within {seconds} s", seconds=f"{config.list_timeout:g}")
        case MCPError():
            if error.message in UNREADABLE and error.data is None:
                return UNREADABLE[error.message]
            attempt = current_request()
            sentence = error_text(error, redact).removeprefix("Error calling MCP server: ")
            if attempt.status and is_http_error_stand_in(error):
                said = body_text(attempt.error_body, redact)
                sentence = f"{status_phrase(attempt.status)}{said and f': {said}'}"
            elif is_unparsable_response(error):
                sentence = NOT_RPC
        case ValidationError():
            return _OTHER_FORM
        case _:
            sentence = f"{type(error).__name__}: {error}"
    return redact(sentence)[:_LONGEST_QUOTE].rstrip(". ")


def connect_failure(
    config: ServerConfig,
    error: BaseException,
    attempt: RequestContext,
    stderr_lines: tuple[str, ...],
    *,
    redact: Redaction,
    limit: float,
) -> Problem:
    """Describe an error that ended a connection or prevented it. `limit` is the connect timeout in seconds."""
    cause = root_cause(error)
    if isinstance(cause, TimeoutError):
        return timeout_message(config, stderr_lines, limit)
    if isinstance(cause, InvalidDefinition):
        return Problem.without_quote(cause.problem_of(config.name))
    match config.transport:
        case StdioTransport() as process:
            known = _process_failure(config.name, process, cause, stderr_lines)
        case HttpTransport():
            known = http_failure(config, attempt, redact)
    if known:
        return known
    if version := unsupported_version(cause):
        return Problem.quoting(
            gettext_lazy(
                "Server {server} speaks a version of MCP that is not known here: {version}.",
                server=config.name,
                version=redact(version)[:_LONGEST_VERSION],
            ),
            gettext_lazy("Server {server} speaks a version of MCP that is not known here.", server=config.name),
            gettext_lazy("update one of the two"),
        )
    if isinstance(cause, ValidationError) or (isinstance(cause, MCPError) and is_unparsable_response(cause)):
        reason: str = _OTHER_FORM
    else:
        sentence = error_text(cause, redact) if isinstance(cause, MCPError) else f"{type(cause).__name__}: {cause}"
        reason = redact(sentence)[:_LONGEST_QUOTE].rstrip(".")
    return Problem.quoting(
        gettext_lazy("Server {server} could not be used: {reason}.", server=config.name, reason=reason),
        gettext_lazy("Server {server} could not be used.", server=config.name),
        _unusable_fix(config, cause, attempt),
    )


def _unusable_fix(config: ServerConfig, cause: BaseException, attempt: RequestContext) -> LazyText:
    if isinstance(config.transport, HttpTransport) and is_plain_json_rpc(cause):
        return gettext_lazy(
            "check that it is an MCP server; if it speaks JSON-RPC 2.0 without MCP, set its transport to jsonrpc_http"
        )
    if config.protocol is Protocol.AUTO:
        is_answer = attempt.status in (None, HTTPStatus.OK)
        is_invalid = isinstance(cause, MCPError) and cause.code in _INVALID and not is_without_answer(cause)
        return _OLDER if is_invalid and is_answer else gettext_lazy("check that it is an MCP server")
    return _version_fix(config, cause, attempt)


def _version_fix(config: ServerConfig, cause: BaseException | None, attempt: RequestContext) -> LazyText:
    if config.protocol is Protocol.AUTO:
        return _OLDER
    if named := named_version(cause, attempt, config.protocol):
        return gettext_lazy("set its protocol to {version} or auto", version=named)
    return gettext_lazy(
        "check that it is an MCP server and speaks MCP {version}, or set its protocol to auto", version=config.protocol
    )


def _process_failure(
    server: str, process: StdioTransport, cause: BaseException, stderr_lines: tuple[str, ...]
) -> Problem | None:
    if isinstance(cause, MCPError) and cause.code == CONNECTION_CLOSED:
        ended = gettext_lazy("Server {server} ended while it was starting.", server=server)
        fix = gettext_lazy("run its command ({command}) by hand and read what it says", command=process.command)
        return Problem.quoting(join_lazy(ended, _stderr_quote(stderr_lines)), ended, fix)
    if isinstance(cause, OSError | ValueError):
        return Problem.without_quote(_not_started(server, process.command, process.cwd, cause))
    return None


def http_failure(config: ServerConfig, attempt: RequestContext, redact: Redaction) -> Problem | None:
    """Describe a broken connection or an HTTP error; None if there is neither."""
    assert isinstance(config.transport, HttpTransport)
    server = config.name
    if attempt.failure:
        fix, address = attempt.fix or gettext_lazy("start it, or correct its url"), public_address(config.transport.url)
        cause = gettext_lazy("Server {server} cannot be reached at {address}.", server=server, address=address)
        reason = gettext_lazy(
            "Server {server} cannot be reached at {address}: {reason}.",
            server=server,
            address=address,
            reason=attempt.failure,
        )
        text = Problem.quoting(reason, cause, fix)
        return text if attempt.quotes else Problem.without_quote(text.text)
    if attempt.status in (401, 403) and not config.from_file:
        cause = gettext_lazy(
            "Server {server} does not let the bot in: {status}.", server=server, status=status_phrase(attempt.status)
        )
        fix = gettext_lazy("set its secret again, or correct its type of authentication")
        return Problem.without_quote(cause_and_fix(cause, fix))
    if attempt.status is not None and attempt.status >= 400:
        return _rejected_status(config, attempt, redact)
    return None


def _rejected_status(config: ServerConfig, attempt: RequestContext, redact: Redaction) -> Problem:
    """Describe an HTTP error, with what its body says."""
    assert attempt.status is not None
    sentence = refused_status(config.name, attempt.status)
    cause, fix = split_fix(sentence)
    if not fix:
        own = gettext_lazy("Server {server}: {problem}.", server=config.name, problem=sentence)
        is_version = _MAY_BE_VERSION.match(f"{attempt.status} {attempt.error_body}")
        fix = _version_fix(config, None, attempt) if is_version else gettext_lazy("check its log")
        cause = join_lazy(own, pause_text(attempt.retry_after))
    said = body_text(attempt.error_body, redact)
    quoted = join_lazy(cause, gettext_lazy('It says: "{text}".', text=said)) if said else cause
    return Problem.quoting(quoted, cause, fix)


def body_text(body: str, redact: Redaction) -> str:
    """Return the words of an HTTP error: the message in JSON, or the text of a page."""
    try:
        body = _message_of(json.loads(body))
    except (ValueError, RecursionError):
        body = _MARKUP.sub(" ", body)
    return " ".join(redact.clean(body).split())[:_LONGEST_QUOTE].rstrip(".")


def _message_of(value: Any) -> str:
    """Return the message in an error's JSON; all of it if it has none that is known."""
    if isinstance(value, dict):
        known = next((value[key] for key in _MESSAGE_KEYS if value.get(key)), None)
        return json.dumps(value) if known is None else _message_of(known)
    return value if isinstance(value, str) else json.dumps(value)


def bounded_pause(retry_after: float | None) -> float:
    """Return the seconds that a server asks to wait, within the limit."""
    return min(retry_after or 0.0, _LONGEST_RETRY_AFTER)


def pause_text(retry_after: float | None) -> str:
    """Return the sentence about the pause in seconds that an HTTP error asks for; empty if it asks for none."""
    return "" if retry_after is None else gettext_lazy("It asks to wait {seconds} s.", seconds=math.ceil(retry_after))


def _not_started(server: str, command: str, cwd: str | None, cause: OSError | ValueError) -> LazyText:
    if isinstance(cause, FileNotFoundError) and cwd is not None and cause.filename == cwd:
        return cause_and_fix(
            gettext_lazy("The folder {folder} of server {server} does not exist.", folder=cwd, server=server),
            gettext_lazy("create it or correct its cwd"),
        )
    if isinstance(cause, FileNotFoundError):
        return cause_and_fix(
            gettext_lazy("The command {command} of server {server} was not found.", command=command, server=server),
            gettext_lazy("install it or correct its command"),
        )
    return cause_and_fix(
        gettext_lazy(
            "The command {command} of server {server} could not be started: {reason}.",
            command=command,
            server=server,
            reason=cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause),
        ),
        gettext_lazy("correct its command"),
    )


def _stderr_quote(stderr_lines: tuple[str, ...]) -> str:
    if not stderr_lines:
        return ""
    return gettext_lazy('Its last words: "{lines}".', lines=" / ".join(stderr_lines[-_QUOTED_LINES:]))


class _Body(BaseModel):
    error: ErrorData


def http_error_response(response: httpx2.Response | None) -> ErrorData | None:
    """Return the error of a response, or None if it succeeded. A JSON-RPC error takes precedence over its HTTP status.
    A missing response is a broken connection.
    """
    attempt = current_request()
    if response is None or attempt.failure:
        return ErrorData(code=CONNECTION_CLOSED, message=attempt.failure or CONNECTION_BROKE)
    if response.is_success:
        return None
    try:
        return _Body.model_validate_json(response.content).error
    except ValidationError:
        return http_error_stand_in(response.status_code)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """End of a session: the problem, the new server status, and True if it had worked. `retry_after`: seconds that the
    server asks to wait. `wrong_transport`: the other side is no server of this transport.
    """

    problem: Problem
    status: ServerStatus
    worked: bool
    retry_after: float = 0.0
    wrong_transport: bool = False


def describe_end(
    config: ServerConfig,
    error: BaseException | None,
    attempt: RequestContext,
    stderr_lines: tuple[str, ...],
    *,
    limit: float,
    worked: bool,
    lost: bool,
    token_provider: TokenProvider | None,
    redact: Redaction,
) -> SessionEnd:
    """Return the problem and the server's new status after the end of a session. A server that needs a sign-in has not
    failed; it is not retried before a sign-in.

    `error` ended the session. `attempt` is its last request. `stderr_lines` are the last ones of its process. `lost`:
    the other side closed the connection. `limit` is the connect timeout in seconds.
    """
    refusal = None
    if attempt.refusal:
        # It may quote the authorization server.
        own = gettext_lazy("Server {server} does not let the bot in.", server=config.name)
        fix = gettext_lazy("`/mcp show {server}` says why", server=config.name)
        refusal = Problem(attempt.refusal, cause_and_fix(own, fix))
    is_refused = not worked and attempt.status in _REFUSED
    if wanted := _sign_in_problem(token_provider, worked=worked) or (refusal if is_refused else None):
        return SessionEnd(wanted, ServerStatus.AUTH_REQUIRED, worked=False)
    if refusal is not None:
        problem = refusal
    elif worked and (lost or error is None):
        problem = connection_lost(config, stderr_lines)
    elif error is None:
        problem = timeout_message(config, stderr_lines, limit)
    else:
        problem = connect_failure(config, error, attempt, stderr_lines, redact=redact, limit=limit)
    retry_after = 0.0 if worked else bounded_pause(attempt.retry_after)
    status = ServerStatus.AUTH_REQUIRED if is_refused else ServerStatus.FAILED
    is_absent = error is not None and isinstance(root_cause(error), InvalidDefinition)
    is_wrong = not worked and (is_absent or attempt.status in NOT_THIS_TRANSPORT)
    return SessionEnd(problem, status, worked, retry_after, is_wrong)


def _sign_in_problem(token_provider: TokenProvider | None, *, worked: bool) -> Problem | None:
    """Return the reason of a rejected sign-in, or None. A server may have rejected the token during negotiation and
    then failed to speak an older protocol.
    """
    if token_provider is None or not (token_provider.is_signed_out or (token_provider.rejected_bot and not worked)):
        return None
    return Problem(token_provider.problem, token_provider.own_problem) if token_provider.problem else None
