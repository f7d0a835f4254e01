"""Outermost middleware: request id, log line, response headers, and the end of a request.

A request is cancelled when its client disconnects, unless it has FINISHES in its state. Event streams end on
`RequestMiddleware.shutdown`, so that the process can exit.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.domain.api_clients import ApiClient
from bot.logs import in_context
from bot.web.problems import internal_error, to_response

log = logging.getLogger("bot.web.access")

FINISHES = "finishes"
"""Key in the state of a request that is completed even if its client disconnects."""

_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_ROUTE = "-"
_EVENTS = "text/event-stream"
_QUIET = frozenset({"/healthz", "/health", "/readyz", "/metrics"})
"""Paths polled by probes, which are not logged."""
_GONE = 499
"""Status in the log for a request whose client disconnected; it is never sent."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every response that does not set them itself, as pages do."""


@dataclass(slots=True)
class _Answer:
    """Sent part of one response. `head` is for a HEAD request."""

    send: Send
    request_id: str
    head: bool
    status: int = 0
    streams: bool = False
    ended: bool = False
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body":
            if self.ended:
                return
            if self.head:
                message = {**message, "body": b""}
            self.ended = not message.get("more_body", False)
        await self.send(message)

    async def close(self) -> None:
        """End a started response."""
        if self.status and not self.ended:
            await self({"type": "http.response.body", "body": b"", "more_body": False})

    def _begin(self, message: MutableMapping[str, Any]) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        headers["X-Request-Id"] = self.request_id
        self.status = message["status"]
        self.streams = headers.get("content-type", "").startswith(_EVENTS)
        self.begun.set()


class RequestMiddleware:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._streams: set[asyncio.Task[None]] = set()
        self._leaving = False

    def shutdown(self) -> None:
        """End all event streams now, and later ones at once."""
        self._leaving = True
        for stream in self._streams:
            stream.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        began_at = time.monotonic()
        inner: Scope = {**scope, "state": {**scope.get("state", {}), "request_id": _id_of(scope)}}
        head = scope["method"] == "HEAD"
        inner["state"]["head"] = head
        if head:
            inner["method"] = "GET"
        answer = _Answer(send, inner["state"]["request_id"], head)
        with in_context(request=answer.request_id):
            try:
                await self._served(inner, receive, answer)
            finally:
                _note(inner, answer, time.monotonic() - began_at, scope["method"])

    async def _served(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """Run the application while the client is connected."""
        caller = _Line(receive)

        async def run() -> None:
            await self._app(scope, caller.receive, answer)

        work = asyncio.create_task(run(), name="request")
        gone = asyncio.create_task(caller.gone(), name="caller")
        begun = asyncio.create_task(answer.begun.wait(), name="begun")
        try:
            await asyncio.wait({work, gone, begun}, return_when=asyncio.FIRST_COMPLETED)
            if answer.streams and not work.done():
                self._streams.add(work)
                if self._leaving or answer.head:
                    work.cancel()
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            # A client with a complete response may disconnect; cleanup is not cancelled.
            if answer.ended or scope["state"].get(FINISHES):
                await asyncio.wait({work})
        finally:
            self._streams.discard(work)
            for task in (work, gone, begun):
                task.cancel()
            ended, *_ = await asyncio.gather(work, gone, begun, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("a request failed", exc_info=ended)
            if not answer.status:
                await to_response(internal_error(), answer.request_id)(scope, receive, answer)
        elif not caller.is_gone:
            await answer.close()


class _Line:
    """Incoming messages: pieces of the body, then the disconnect. Only one waiter reads at a time, and shares the
    result.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body_ended = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    async def receive(self) -> Message:
        """Return the next piece of the body; after that, wait for the disconnect."""
        if not self._body_ended.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone.set()
                self._body_ended.set()
            elif not message.get("more_body", False):
                self._body_ended.set()
            return message
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def gone(self) -> None:
        """Wait for the disconnect. Until the body is complete, its reader receives it."""
        await self._body_ended.wait()
        while not self._gone.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone.set()


def _id_of(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _SANE.fullmatch(given) else secrets.token_hex(8)


def _note(scope: Scope, answer: _Answer, seconds: float, method: str) -> None:
    """Log one line with the route template, never its values."""
    route = scope["state"].get("route") or getattr(scope.get("route"), "path", "") or _NO_ROUTE
    caller = scope["state"].get("caller")
    name = caller.name if isinstance(caller, ApiClient) else "-"
    level = logging.DEBUG if route in _QUIET else logging.INFO
    log.log(level, "%s %s %d %.0f ms caller=%s", method, route, answer.status or _GONE, seconds * 1000, name)
