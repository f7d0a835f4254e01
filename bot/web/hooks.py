"""Hooks: HTTP requests from platforms. Each hook authenticates its requests itself; none takes an API token.

A body longer than the hook's limit is not read.
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
    """Response of a hook."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the response."""

    @property
    def body(self) -> str:
        """Body of the response."""


class Hook(Protocol):
    """A handler of POST requests at one path."""

    @property
    def path(self) -> str:
        """Path, with a leading slash."""

    @property
    def largest_body(self) -> int:
        """Longest body in bytes. Longer ones are answered with 413."""

    async def answer(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Authenticate and handle one request. Never raises."""


def hook_route(hook: Hook) -> Route:
    """Return the route of a hook."""

    async def take(request: Request) -> Response:
        body = await _read(request, hook.largest_body)
        if isinstance(body, Response):
            return body
        # A platform hangs up after its timeout and does not repeat an interaction.
        request.scope["state"][FINISHES] = True
        answer = await hook.answer(dict(request.headers), body)
        return Response(answer.body, answer.status, dict(answer.headers))

    return Route(hook.path, take, methods=["POST"])


async def _read(request: Request, most: int) -> bytes | Response:
    """Return the body, or the error response."""
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
