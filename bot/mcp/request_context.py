"""What became of one request below the MCP library.

The library hides whether a request left the process and which HTTP status answered it. The streams and the HTTP
client write it into the attempt of the task that asked; the library runs each message in its sender's context, so a
context variable finds the right one among requests that run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class RequestContext:
    """One request. `sent`: it may have left the process. `status`: of the HTTP answer. `failure`: why the connection
    failed under it. `quotes`: text of the other side may stand in `failure`. `refusal`: why the server does not let the
    bot in, for people, if there is more to say than that. `people`: how many are being asked something about it,
    `asked_until`: until when they were, in seconds of a clock. Meanwhile it is no wonder that the server says nothing.
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
        """A person is asked within the block."""
        self.people += 1
        try:
            yield
        finally:
            self.people -= 1
            self.asked_until = time.monotonic()

    def quiet_since(self, moment: float) -> float:
        """Since when the server could have said something and has not, if it last did at that moment."""
        return time.monotonic() if self.people else max(moment, self.asked_until)


_current: ContextVar[RequestContext | None] = ContextVar("mcp_attempt", default=None)


@contextmanager
def begin() -> Iterator[RequestContext]:
    """Record what becomes of the requests that are made in this block."""
    attempt = RequestContext()
    token = _current.set(attempt)
    try:
        yield attempt
    finally:
        _current.reset(token)


def current() -> RequestContext:
    """The attempt of the request being served; one that nobody reads if there is none."""
    return _current.get() or RequestContext()
