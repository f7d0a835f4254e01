"""Facts about a request that the MCP library hides: delivery, HTTP status, connection error.

Streams and HTTP client write them into the context of the requesting task. The library runs each message in its
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
    `failure` may quote the server. `refusal`: reason of a rejected sign-in, for users. `people`: number of open
    elicitations. `asked_until`: end of the last one, in seconds of a clock. The server may be silent during them.
    """

    sent: bool = False
    status: int | None = None
    failure: str = ""
    quotes: bool = False
    refusal: str = ""
    people: int = 0
    asked_until: float = 0.0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Count an open elicitation within the block."""
        self.people += 1
        try:
            yield
        finally:
            self.people -= 1
            self.asked_until = time.monotonic()

    def quiet_since(self, moment: float) -> float:
        """Return the time since which the server is silent, if its last message came at `moment`. Elicitations do
        not count.
        """
        return time.monotonic() if self.people else max(moment, self.asked_until)


_current: ContextVar[RequestContext | None] = ContextVar("mcp_attempt", default=None)


@contextmanager
def begin() -> Iterator[RequestContext]:
    """Record the requests made in this block."""
    attempt = RequestContext()
    token = _current.set(attempt)
    try:
        yield attempt
    finally:
        _current.reset(token)


def current() -> RequestContext:
    """Return the context of the current request, or an unused one."""
    return _current.get() or RequestContext()
