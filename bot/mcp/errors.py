"""Errors of servers and their requests: sentences with cause and fix, and the facts that they are made of.

No library is loaded here, because a chat reads the servers' file before its first prompt.

Texts may hold secrets: the connection redacts them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from bot.errors import ServerTrouble
from bot.i18n import LazyText, gettext_lazy, join_lazy, make_lazy

LARGEST_ANSWER = 8 * 1024 * 1024
"""Maximum size in bytes of a response or of one event, on every transport, because it is held in memory."""
TOO_LARGE = gettext_lazy("its answer has more than {megabytes} MB", megabytes=LARGEST_ANSWER // 1024**2)
"""Reason for a rejected response, as a part of a sentence."""
NOT_RPC = gettext_lazy("its answer is not JSON-RPC 2.0")
NOT_JSON = gettext_lazy("its answer is not JSON")
TOO_DEEP = gettext_lazy("its answer is nested too deeply")
TOO_DEEP_SCHEMA = gettext_lazy("its arguments are nested too deeply")
NO_RESULT = gettext_lazy("its answer has neither a result nor an error")
RESULT_IS_NULL = gettext_lazy("the result in its answer is null")
RESULT_IS_NO_OBJECT = gettext_lazy("the result in its answer is no object")
WITHOUT_ID = gettext_lazy("its answer does not say which request it is for")
FOREIGN_ID = gettext_lazy("its answer is for another request")
_UNREADABLE = (
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
UNREADABLE: Mapping[str, str] = {reason: reason for reason in _UNREADABLE}
"""Reasons for an unreadable response, as parts of a sentence, by their English text."""
COMPRESSED = gettext_lazy("its answer is compressed, though it was asked not to")
CONNECTION_BROKE = gettext_lazy("the connection broke")
_CAUSE_AND_FIX = gettext_lazy("{cause} Fix: {fix}.").message
_ABOUT_THE_REQUEST = frozenset((-32600, -32601, -32602, -32002, -32042))
"""JSON-RPC codes that say of the request, and not of the server, what is wrong or missing."""
_OF_THE_SERVER = frozenset((401, 403, 408))
"""Statuses below 500 that say that the server has a problem, or the bot with all of it."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


@dataclass(frozen=True, slots=True)
class Problem:
    """Error of a server: `text` for users, which may quote the server, and `own` without text of the server."""

    text: str
    own: str

    @classmethod
    def quoting(cls, cause: str, own_cause: str, fix: str) -> Problem:
        """Return a problem with a cause that quotes the server, and one without the quote."""
        return cls(cause_and_fix(cause, fix), cause_and_fix(own_cause, fix))

    @classmethod
    def without_quote(cls, text: str) -> Problem:
        """Return a problem with one text for users and for the model."""
        return cls(text, text)


NO_PROBLEM = Problem("", "")


def cause_and_fix(cause: str, fix: str) -> LazyText:
    """Return a sentence with the failure and an imperative without its full stop as one text."""
    return LazyText(_CAUSE_AND_FIX, "", {"cause": cause, "fix": fix})


def split_fix(text: str) -> tuple[str, str]:
    """Return cause and fix of a text of `cause_and_fix`; any other text is a cause."""
    if isinstance(text, LazyText) and text.message == _CAUSE_AND_FIX:
        return cast("str", text.values["cause"]), cast("str", text.values["fix"])
    cause, _separator, fix = text.partition(" Fix: ")
    return (cause, fix.removesuffix(".")) if fix else (text, "")


def with_lead(lead: str, problem: str) -> str:
    """Put a sentence before a problem."""
    cause, fix = split_fix(problem)
    return cause_and_fix(join_lazy(lead, cause), fix) if fix else join_lazy(lead, cause)


def lazy_reason(error: Exception) -> str:
    """Return the lazy text that an error was raised with; empty if it has another one."""
    return error.args[0] if error.args and isinstance(error.args[0], LazyText) else ""


def known_fix(error: BaseException) -> str:
    """Return the fix of the error's cause; empty if it has none."""
    return getattr(error.__cause__, "fix", "")


def without_stop(text: str) -> str:
    """Return a sentence without its full stop, as a part of another one."""
    return text.as_clause() if isinstance(text, LazyText) else text.rstrip(".")


class InvalidDefinition(Exception):
    """Server definition that cannot be used.

    `cause` is a sentence, `fix` an imperative without its full stop: literals with these `values`, or lazy texts.
    Neither holds a secret. `key` is the wrong key of the entry, such as `headers.Authorization`; empty if no single key
    is wrong.
    """

    def __init__(self, cause: str, fix: str, key: str = "", /, **values: object) -> None:
        self.cause = make_lazy(cause, **values)
        self.fix = make_lazy(fix, **values)
        self.key = key
        super().__init__(self.cause)

    @property
    def sentence(self) -> LazyText:
        """Cause and fix in one text."""
        return cause_and_fix(self.cause, self.fix)

    def problem_of(self, server: str) -> LazyText:
        """Cause and fix in one text that begins with the server's name."""
        return cause_and_fix(gettext_lazy("Server {server}: {problem}", server=server, problem=self.cause), self.fix)


def header_fits(name: str, value: str) -> bool:
    """Return True if the header can be sent unchanged. A line break would inject another header."""
    return bool(_HEADER_NAME.fullmatch(name)) and value.isascii() and value.isprintable()


def error_message(sentence: str) -> ServerTrouble:
    """Return the error for a sentence with cause and fix."""
    return ServerTrouble(*split_fix(sentence))


def status_phrase(status: int) -> str:
    """Return `500 Internal Server Error`, or the number alone if it has no name."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


@dataclass(slots=True)
class RequestContext:
    """Context of one request to a server: delivery, HTTP status, connection error.

    Streams and HTTP client write it into the context of the requesting task. The MCP library runs each message in its
    sender's context, so a context variable separates concurrent requests.

    `sent`: the request may have left the process. `status`: HTTP status. `code`: JSON-RPC error code. `failure`:
    connection error. `fix`: its fix, empty if it lies with the server. `quotes`: `failure` may quote the server.
    `refusal`: reason of a rejected sign-in, for users.
    `retry_after`: seconds that the server asks to wait. `error_body`: beginning of the body of an HTTP error,
    unredacted. `open_elicitations`: their number. `asked_until`: end of the last one, in seconds of a clock. The server
    may be silent during them.
    """

    sent: bool = False
    status: int | None = None
    code: int | None = None
    failure: str = ""
    fix: str = ""
    quotes: bool = False
    refusal: str = ""
    retry_after: float | None = None
    error_body: str = ""
    open_elicitations: int = 0
    asked_until: float = 0.0

    @property
    def server_failed(self) -> bool:
        """True if the server, and not the request, was the reason of the failure: by the HTTP status, or because the
        connection broke.
        """
        status = self.status or 0
        is_of_server = status >= 500 or (status in _OF_THE_SERVER and not self.refusal)
        asks_to_wait = status == HTTPStatus.TOO_MANY_REQUESTS or self.retry_after is not None
        has_error = asks_to_wait or (is_of_server and self.code not in _ABOUT_THE_REQUEST)
        return has_error or bool(self.sent and self.failure)

    @contextmanager
    def count_elicitation(self) -> Iterator[None]:
        """Count an open elicitation within the block."""
        self.open_elicitations += 1
        try:
            yield
        finally:
            self.open_elicitations -= 1
            self.asked_until = time.monotonic()

    def quiet_since(self, moment: float) -> float:
        """Return the time since which the server is silent, if its last message came at `moment`. Elicitations do
        not count.
        """
        return time.monotonic() if self.open_elicitations else max(moment, self.asked_until)


_current_request: ContextVar[RequestContext | None] = ContextVar("mcp_request", default=None)


@contextmanager
def record_request() -> Iterator[RequestContext]:
    """Record the requests made in this block."""
    attempt = RequestContext()
    token = _current_request.set(attempt)
    try:
        yield attempt
    finally:
        _current_request.reset(token)


def current_request() -> RequestContext:
    """Return the context of the current request, or an unused one."""
    return _current_request.get() or RequestContext()
