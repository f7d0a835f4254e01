"""One HTTP server in the program's own event loop: `/healthz`, and hooks that platforms call.

Called by the composition root, which brings the hooks. A body is never read beyond what its hook takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.errors import SettingsError

_READING_SECONDS = 15.0
_GOODBYE_SECONDS = 5
_BACKLOG = 128


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


def application(hooks: Sequence[Hook]) -> Starlette:
    """The routes."""
    routes = [Route("/healthz", _alive), *(Route(hook.path, _taking(hook), methods=["POST"]) for hook in hooks)]
    return Starlette(routes=routes)


@contextlib.asynccontextmanager
async def served(app: Starlette, host: str, port: int) -> AsyncIterator[int]:
    """Serve for as long as the block runs; the port it is on. Requests under way get a moment to end. Raises
    SettingsError if the address cannot be had.
    """
    listening = _bound(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listening]), name="http")
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait({serving})
        listening.close()


class _Server(uvicorn.Server):
    """Leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bound(host: str, port: int) -> socket.socket:
    try:
        found, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            # From here on connections wait, until the server takes them.
            listening.listen(_BACKLOG)
            stack.pop_all()
    except OSError as error:
        raise SettingsError(
            f"Nothing can be served at {host}, port {port}: {error.strerror or error}.",
            "end what uses it, or set WEB_HOST and PORT",
        ) from error
    return listening


async def _alive(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _taking(hook: Hook) -> Callable[[Request], Awaitable[Response]]:
    async def take(request: Request) -> Response:
        body = await _read(request, hook.largest_body)
        if isinstance(body, Response):
            return body
        answer = await hook.answer(dict(request.headers), body)
        return Response(answer.body, answer.status, dict(answer.headers))

    return take


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
