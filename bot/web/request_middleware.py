"""Around every request: its id, its line in the log, the headers of its answer, and its end.

The outermost part of the application. Knows no route. A request ends when whoever asked goes away, unless it FINISHES;
streams of events end as soon as the program leaves (`RequestMiddleware.shutdown`), so that nothing waits for them.
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
"""In the state of a request that is served to its end although nobody waits for it any more."""

_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_ROUTE = "-"
_EVENTS = "text/event-stream"
_QUIET = frozenset({"/healthz", "/health", "/readyz", "/metrics"})
"""What machines ask every few seconds: nobody wants a line for each."""
_GONE = 499
"""The status that the log has for a request whose caller went away; nobody gets to see it."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
"""What every answer has that does not say otherwise itself, as pages do."""


@dataclass(slots=True)
class _Answer:
    """What has been sent of one answer so far. `head` is for a request that wants no body."""

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
        """End what was begun."""
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
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._streams: set[asyncio.Task[None]] = set()
        self._leaving = False

    def shutdown(self) -> None:
        """End all streams of events now, and those that are asked for from now on."""
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
        """Have it answered, for as long as somebody waits for that."""
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
            # Whoever has the whole answer is gone, too; what is still being cleared up is not cut off.
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
    """What comes from the caller: the body's pieces for whoever reads it, and the news that nobody is there any more.
    Only one of those who wait reads at a time, and what is read is for both.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body_ended = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()

    async def receive(self) -> Message:
        """The next piece of the body; after that, waits until the caller goes."""
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
        """Wait until the caller goes. Before the body is read to its end, whoever reads it learns of that."""
        await self._body_ended.wait()
        while not self._gone.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone.set()


def _id_of(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _SANE.fullmatch(given) else secrets.token_hex(8)


def _note(scope: Scope, answer: _Answer, seconds: float, method: str) -> None:
    """One line; the route as it is written, never what was filled in: that may be anything."""
    route = scope["state"].get("route") or getattr(scope.get("route"), "path", "") or _NO_ROUTE
    caller = scope["state"].get("caller")
    name = caller.name if isinstance(caller, ApiClient) else "-"
    level = logging.DEBUG if route in _QUIET else logging.INFO
    log.log(level, "%s %s %d %.0f ms caller=%s", method, route, answer.status or _GONE, seconds * 1000, name)
