"""Hooks: requests that platforms make to us. Each checks by itself who is asking, and none takes a token of ours.

The composition root brings the hooks; a body is never read beyond what its hook takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.web.request_middleware import FINISHES

_READING_SECONDS = 15.0


class Answer(Protocol):
    """What a hook wants sent back."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers to send."""

    @property
    def body(self) -> str:
        """The text to send."""


class Hook(Protocol):
    """Takes POST requests at one path. `largest_body` is in bytes."""

    @property
    def path(self) -> str:
        """Where it listens, with a slash first."""

    @property
    def largest_body(self) -> int:
        """Longer bodies are answered with 413."""

    async def answer(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Take one request. Checks by itself who is asking. Never raises."""


def hook_route(hook: Hook) -> Route:
    """The route that hands requests to a hook."""

    async def take(request: Request) -> Response:
        body = await _read(request, hook.largest_body)
        if isinstance(body, Response):
            return body
        # A platform that has waited long enough hangs up, and says nothing of a press a second time.
        request.scope["state"][FINISHES] = True
        answer = await hook.answer(dict(request.headers), body)
        return Response(answer.body, answer.status, dict(answer.headers))

    return Route(hook.path, take, methods=["POST"])


async def _read(request: Request, most: int) -> bytes | Response:
    """The body, or why it is not taken."""
    body = bytearray()
    try:
        async with asyncio.timeout(_READING_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    return PlainTextResponse("too large\n", 413)
    except TimeoutError:
        return PlainTextResponse("too slow\n", 408)
    except ClientDisconnect:
        return Response(status_code=400)
    return bytes(body)
