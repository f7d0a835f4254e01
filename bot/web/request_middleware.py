"""Outermost middleware: request id, language, log line, response headers, and the end of a request.

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
from bot.i18n import DEFAULT_LANGUAGE, current_language, resolve_language, use_language
from bot.logs import in_context
from bot.web.problems import internal_error, to_response

log = logging.getLogger("bot.web.access")

FINISHES = "finishes"
"""Key in the state of a request that is completed even if its client disconnects."""

_LONGEST_HEADER = 1_000
_WEIGHT = re.compile(r"\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*", re.IGNORECASE)
_WITHOUT_LANGUAGE = ("text/plain", "image/", "application/octet-stream")
"""Content types of responses without texts for people."""
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_ROUTE = "-"
_EVENT_STREAM = "text/event-stream"
_PROBE_PATHS = frozenset({"/healthz", "/health", "/readyz", "/metrics"})
"""Paths polled by probes, which are not logged."""
_DISCONNECTED = 499
"""Status in the log for a request with a disconnected client; it is never sent."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every response that does not set them itself, as pages do."""


@dataclass(slots=True)
class _Response:
    """Sent part of one response. `head` is for a HEAD request."""

    send: Send
    request_id: str
    head: bool
    status: int = 0
    streams: bool = False
    ended: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start(message)
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

    def _start(self, message: MutableMapping[str, Any]) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        headers["X-Request-Id"] = self.request_id
        self.status = message["status"]
        content_type = headers.get("content-type", "")
        if content_type and not content_type.startswith(_WITHOUT_LANGUAGE):
            headers.setdefault("Content-Language", current_language())
            headers.add_vary_header("Accept-Language")
        self.streams = content_type.startswith(_EVENT_STREAM)
        self.started.set()


class RequestMiddleware:
    """Middleware around the whole application. `language` is for requests that accept no installed one."""

    def __init__(self, app: ASGIApp, language: str = DEFAULT_LANGUAGE) -> None:
        self._app = app
        self._language = language
        self._streams: set[asyncio.Task[None]] = set()
        self._shutting_down = False

    def shutdown(self) -> None:
        """End all event streams now, and later ones at once."""
        self._shutting_down = True
        for stream in self._streams:
            stream.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        started_at = time.monotonic()
        inner: Scope = {**scope, "state": {**scope.get("state", {}), "request_id": _request_id(scope)}}
        head = scope["method"] == "HEAD"
        inner["state"]["head"] = head
        if head:
            inner["method"] = "GET"
        response = _Response(send, inner["state"]["request_id"], head)
        language = accepted_language(Headers(scope=scope).get("accept-language", ""))
        inner["state"]["language"] = language
        with in_context(request=response.request_id), use_language(language or self._language):
            try:
                await self._run(inner, receive, response)
            finally:
                _log(inner, response, time.monotonic() - started_at, scope["method"])

    async def _run(self, scope: Scope, receive: Receive, response: _Response) -> None:
        """Run the application while the client is connected."""
        connection = _Connection(receive)

        async def run() -> None:
            await self._app(scope, connection.receive, response)

        work = asyncio.create_task(run(), name="request")
        closed = asyncio.create_task(connection.wait_closed(), name="caller")
        started = asyncio.create_task(response.started.wait(), name="begun")
        try:
            await asyncio.wait({work, closed, started}, return_when=asyncio.FIRST_COMPLETED)
            if response.streams and not work.done():
                self._streams.add(work)
                if self._shutting_down or response.head:
                    work.cancel()
            await asyncio.wait({work, closed}, return_when=asyncio.FIRST_COMPLETED)
            # A client with a complete response may disconnect; cleanup is not cancelled.
            if response.ended or scope["state"].get(FINISHES):
                await asyncio.wait({work})
        finally:
            self._streams.discard(work)
            for task in (work, closed, started):
                task.cancel()
            ended, *_ = await asyncio.gather(work, closed, started, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("a request failed", exc_info=ended)
            if not response.status:
                await to_response(internal_error(), response.request_id)(scope, receive, response)
        elif not connection.is_closed:
            await response.close()


class _Connection:
    """Incoming messages: pieces of the body, then the disconnect. Only one waiter reads at a time, and shares the
    result.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body_ended = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def receive(self) -> Message:
        """Return the next piece of the body; after that, wait for the disconnect."""
        if not self._body_ended.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._closed.set()
                self._body_ended.set()
            elif not message.get("more_body", False):
                self._body_ended.set()
            return message
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def wait_closed(self) -> None:
        """Wait for the disconnect. Until the body is complete, its reader receives it."""
        await self._body_ended.wait()
        while not self._closed.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._closed.set()


def accepted_language(header: str) -> str | None:
    """Return the installed language that an Accept-Language header prefers (RFC 9110, section 12.5.4), None if there
    is none.
    """
    ranges = (entry.partition(";") for entry in header[:_LONGEST_HEADER].split(","))
    weighted = ((resolve_language(tag.strip()), _weight(parameters)) for tag, _semicolon, parameters in ranges)
    languages = sorted(((tag, weight) for tag, weight in weighted if tag and weight), key=lambda entry: -entry[1])
    return languages[0][0] if languages else None


def _weight(parameters: str) -> float:
    match = _WEIGHT.fullmatch(parameters)
    return float(match[1]) if match else 1.0


def _request_id(scope: Scope) -> str:
    header = Headers(scope=scope).get("x-request-id", "")
    return header if _SAFE_ID.fullmatch(header) else secrets.token_hex(8)


def _log(scope: Scope, response: _Response, seconds: float, method: str) -> None:
    """Log one line with the route template, never its values."""
    route = scope["state"].get("route") or getattr(scope.get("route"), "path", "") or _NO_ROUTE
    caller = scope["state"].get("caller")
    name = caller.name if isinstance(caller, ApiClient) else "-"
    level = logging.DEBUG if route in _PROBE_PATHS else logging.INFO
    log.log(level, "%s %s %d %.0f ms caller=%s", method, route, response.status or _DISCONNECTED, seconds * 1000, name)
