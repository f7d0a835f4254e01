"""Requests in flight: how many are served at the same time. Probes and hooks are not counted."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.web.problems import Problem, to_response


class Capacity:
    """Answer 503 to a request beyond `most`, except at the paths that are `served_always`. A request counts once its
    body has arrived as a whole: before that its connection can make room.
    """

    def __init__(self, app: ASGIApp, served_always: Collection[str], most: int) -> None:
        self._app = app
        self._served_always = frozenset(served_always)
        self._most = most
        self._in_flight: set[object] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] in self._served_always:
            await self._app(scope, receive, send)
            return
        if len(self._in_flight) >= self._most:
            await to_response(_busy(), scope["state"]["request_id"])(scope, receive, send)
            return
        place = object()

        async def next_message() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                self._in_flight.add(place)
            return message

        if not _has_body(scope):
            self._in_flight.add(place)
        try:
            await self._app(scope, next_message, send)
        finally:
            self._in_flight.discard(place)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _busy() -> Problem:
    return Problem(
        503,
        "too_busy",
        "Too many requests are being served.",
        "try again in a moment",
        headers={"Retry-After": "5"},
    )
