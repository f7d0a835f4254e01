"""Facts about one request to a server: delivery, HTTP status, connection error.

Streams and HTTP client write them into the context of the requesting task. The MCP library runs each message in its
sender's context, so a context variable separates concurrent requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class RequestContext:
    """Context of one request.

    `sent`: the request may have left the process. `status`: HTTP status. `failure`: connection error. `quotes`:
    `failure` may quote the server. `refusal`: reason of a rejected sign-in, for users. `retry_after`: seconds that the
    server asks to wait. `error_body`: beginning of the body of an HTTP error, unredacted. `open_elicitations`: their
    number. `asked_until`: end of the last one, in seconds of a clock. The server may be silent during them.
    """

    sent: bool = False
    status: int | None = None
    failure: str = ""
    quotes: bool = False
    refusal: str = ""
    retry_after: float | None = None
    error_body: str = ""
    open_elicitations: int = 0
    asked_until: float = 0.0

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


_current_request: ContextVar[RequestContext | None] = ContextVar("mcp_attempt", default=None)


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
