"""Errors of servers, as sentences with cause and fix.

Texts may hold secrets: the connection redacts them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

import httpx2
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED, ErrorData
from pydantic import BaseModel, ValidationError

from bot.domain.servers import HttpTransport, Protocol, ServerConfig, StdioTransport
from bot.mcp import sdk
from bot.mcp.redaction import Redaction, public_address
from bot.mcp.results import error_text
from bot.mcp.sdk import RequestContext, http_error_stand_in, unsupported_version

_QUOTED_LINES = 3
_LONGEST_QUOTE = 500
_LONGEST_VERSION = 40
LARGEST_ANSWER = 8 * 1024 * 1024
"""Maximum size in bytes of a response or of one event, on every transport, because it is held in memory."""
TOO_LARGE = f"its answer has more than {LARGEST_ANSWER // 1024**2} MB"
"""Reason for a rejected response, as a part of a sentence."""
NOT_RPC = "its answer is not JSON-RPC 2.0"
NOT_JSON = "its answer is not JSON"
TOO_DEEP = "its answer is nested too deeply"
TOO_DEEP_SCHEMA = "its arguments are nested too deeply"
NO_RESULT = "its answer has neither a result nor an error"
RESULT_IS_NULL = "the result in its answer is null"
RESULT_IS_NO_OBJECT = "the result in its answer is no object"
WITHOUT_ID = "its answer does not say which request it is for"
FOREIGN_ID = "its answer is for another request"
UNREADABLE = frozenset(
    (
        TOO_LARGE,
        NOT_RPC,
        NOT_JSON,
        TOO_DEEP,
        NO_RESULT,
        RESULT_IS_NULL,
        RESULT_IS_NO_OBJECT,
        WITHOUT_ID,
        FOREIGN_ID,
    )
)
"""Reasons for an unreadable response, as parts of a sentence."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


@dataclass(frozen=True, slots=True)
class Problem:
    """Error of a server: `text` for users, which may quote the server, and `own` without text of the server."""

    text: str
    own: str

    @classmethod
    def quoting(cls, cause: str, quote: str, rest: str) -> Problem:
        """Insert a quote of the server after the cause, before its full stop."""
        return cls(f"{cause.removesuffix('.')}{quote}. {rest}", f"{cause} {rest}")

    @classmethod
    def without_quote(cls, text: str) -> Problem:
        """Return a problem with one text for users and for the model."""
        return cls(text, text)


NO_PROBLEM = Problem("", "")


def root_cause(error: BaseException) -> BaseException:
    """Return the first error inside groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def status_phrase(status: int) -> str:
    """Return `500 Internal Server Error`, or the number alone if it has no name."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def refused_status(server: str, status: int) -> str:
    """Describe an HTTP error status, with a fix where one is known."""
    match status:
        case 401 | 403:
            fix = f" Fix: check the headers of server {server}."
        case 404 | 405 | 410:
            fix = f" Fix: check the url of server {server}, and that its transport is the right one."
        case _:
            return f"MCP server request failed: {status_phrase(status)}"
    return f"MCP server request failed: {status_phrase(status)}.{fix}"


def timeout_message(config: ServerConfig, stderr_lines: tuple[str, ...], limit: float) -> Problem:
    """Describe a timeout while connecting."""
    what = (
        "that it speaks MCP on its standard output"
        if isinstance(config.transport, StdioTransport)
        else "that an MCP server listens at its url"
    )
    cause = f"Server {config.name} did not answer within {limit:g} s."
    return Problem.quoting(cause, _stderr_quote(stderr_lines), f"Fix: check {what}, or raise its connect_timeout.")


def connection_lost(config: ServerConfig, stderr_lines: tuple[str, ...]) -> Problem:
    """Describe the loss of an established connection."""
    cause = f"The connection to server {config.name} was lost."
    return Problem.quoting(cause, _stderr_quote(stderr_lines), "It is made again when it is needed.")


def failed_listing(config: ServerConfig, error: Exception, redact: Redaction) -> str:
    """Describe a failed listing of a connected server's capabilities."""
    return f"Server {config.name} did not say what it offers: {_error_text(config, error, redact)}. Fix: check its log."


def failed_request(config: ServerConfig, what: str, error: Exception, redact: Redaction) -> tuple[str, str]:
    """Return cause and fix for a failed request of a resource or prompt."""
    if isinstance(error, TimeoutError):
        limit = f"{config.tool_timeout:g} s"
        return f"Server {config.name} did not give {what} within {limit}.", "try again later, or check its log"
    return (
        f"Server {config.name} did not give {what}: {_error_text(config, error, redact)}.",
        "check the name and what it needs",
    )


def _error_text(config: ServerConfig, error: Exception, redact: Redaction) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {config.list_timeout:g} s"
        case MCPError():
            sentence = error_text(error, redact).removeprefix("Error calling MCP server: ")
        case ValidationError():
            return "its answer is not in the form that the protocol wants"
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
        return Problem.without_quote(f"Server {config.name}: {cause.sentence}")
    match config.transport:
        case StdioTransport() as process:
            known = _process_failure(config.name, process, cause, stderr_lines)
        case HttpTransport(url=url):
            known = _http_failure(config, url, attempt)
    if known:
        return known
    if version := unsupported_version(cause):
        sentence = redact(version)[:_LONGEST_VERSION]
        unknown = f"Server {config.name} speaks a version of MCP that is not known here."
        return Problem.quoting(unknown, f": {sentence}", "Fix: update one of the two.")
    sentence = error_text(cause, redact) if isinstance(cause, MCPError) else f"{type(cause).__name__}: {cause}"
    sentence = redact(sentence)[:_LONGEST_QUOTE].rstrip(".")
    unusable = f"Server {config.name} could not be used."
    fix = "check that it is an MCP server"
    if config.protocol is not Protocol.AUTO:
        fix = f"{fix} and speaks MCP {config.protocol}, or set its protocol to auto"
    return Problem.quoting(unusable, f": {sentence}", f"Fix: {fix}.")


def _process_failure(
    server: str, process: StdioTransport, cause: BaseException, stderr_lines: tuple[str, ...]
) -> Problem | None:
    if isinstance(cause, MCPError) and cause.code == CONNECTION_CLOSED:
        fix = f"Fix: run its command ({process.command}) by hand and read what it says."
        return Problem.quoting(f"Server {server} ended while it was starting.", _stderr_quote(stderr_lines), fix)
    if isinstance(cause, OSError | ValueError):
        return Problem.without_quote(_not_started(server, process.command, process.cwd, cause))
    return None


def _http_failure(config: ServerConfig, url: str, attempt: RequestContext) -> Problem | None:
    server = config.name
    if attempt.failure:
        cause, why = f"Server {server} cannot be reached at {public_address(url)}.", f": {attempt.failure.rstrip('.')}"
        text = Problem.quoting(cause, why, "Fix: start it, or correct its url.")
        return text if attempt.quotes else Problem.without_quote(text.text)
    if attempt.status in (401, 403) and not config.from_file:
        return Problem.without_quote(
            f"Server {server} does not let the bot in: {status_phrase(attempt.status)}. "
            f"Fix: set its secret again, or correct its type of authentication."
        )
    if attempt.status is not None and attempt.status >= 400:
        sentence = refused_status(server, attempt.status)
        wait = "" if attempt.retry_after is None else f" It asks to wait {attempt.retry_after:g} s."
        return Problem.without_quote(
            sentence if "Fix:" in sentence else f"Server {server}: {sentence}.{wait} Fix: check its log."
        )
    return None


def _not_started(server: str, command: str, cwd: str | None, cause: OSError | ValueError) -> str:
    if isinstance(cause, FileNotFoundError) and cwd is not None and cause.filename == cwd:
        return f"The folder {cwd} of server {server} does not exist. Fix: create it or correct its cwd."
    if isinstance(cause, FileNotFoundError):
        return f"The command {command} of server {server} was not found. Fix: install it or correct its command."
    why = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return f"The command {command} of server {server} could not be started: {why}. Fix: correct its command."


def _stderr_quote(stderr_lines: tuple[str, ...]) -> str:
    return f'. Its last words: "{" / ".join(stderr_lines[-_QUOTED_LINES:])}"' if stderr_lines else ""


class _Body(BaseModel):
    error: ErrorData


def http_error_response(response: httpx2.Response | None) -> ErrorData | None:
    """Return the error of a response, or None if it succeeded. A JSON-RPC error takes precedence over its HTTP status.
    A missing response is a broken connection.
    """
    attempt = sdk.current_request()
    if response is None or attempt.failure:
        return ErrorData(code=CONNECTION_CLOSED, message=attempt.failure or "the connection broke")
    if response.is_success:
        return None
    try:
        return _Body.model_validate_json(response.content).error
    except ValidationError:
        return http_error_stand_in(response.status_code)


class InvalidDefinition(Exception):
    """Server definition that cannot be used.

    `cause` is a sentence, `fix` an imperative without its full stop. Neither holds a secret. `key` is the wrong key of
    the entry, such as `headers.Authorization`; empty if no single key is wrong.
    """

    def __init__(self, cause: str, fix: str, key: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix
        self.key = key

    @property
    def sentence(self) -> str:
        """Cause and fix in one text."""
        return f"{self.cause} Fix: {self.fix}."


def header_fits(name: str, value: str) -> bool:
    """Return True if the header can be sent unchanged. A line break would inject another header."""
    return bool(_HEADER_NAME.fullmatch(name)) and value.isascii() and value.isprintable()
