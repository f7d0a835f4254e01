"""One HTTP server in the program's own event loop. Called by the composition root; knows no route."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator

import uvicorn

from bot.errors import SettingsError
from bot.web.connections import Connection
from bot.web.requests import Requests

_GOODBYE_SECONDS = 5
_BACKLOG = 128


@contextlib.asynccontextmanager
async def served(app: Requests, host: str, port: int, connection: type[Connection] = Connection) -> AsyncIterator[int]:
    """Serve for as long as the block runs; the port it is on. Requests under way get a moment to end, streams of events
    none. `connection` says what a connection may take. Raises SettingsError if the address cannot be had.
    """
    listening = bound(host, port)
    config = uvicorn.Config(
        app,
        http=connection,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_GOODBYE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listening]), name="http")
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        app.leave()
        await asyncio.wait({serving})
        listening.close()


class _Server(uvicorn.Server):
    """Leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there: from here on connections wait, until a server takes them. Raises SettingsError."""
    try:
        found, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            stack.pop_all()
    except OSError as error:
        raise SettingsError(
            f"Nothing can be served at {host}, port {port}: {error.strerror or error}.",
            "end what uses it, or set WEB_HOST and PORT to an address of this machine that is free",
        ) from error
    return listening
