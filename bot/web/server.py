"""HTTP server in the program's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator
from typing import cast

import uvicorn

from bot.errors import SettingsError
from bot.web.connection_table import ConnectionLimits, TrustedProxies
from bot.web.http_protocol import connection_factory
from bot.web.request_middleware import RequestMiddleware

_GOODBYE_SECONDS = 5
_ACCEPTED_AT_ONCE = 64
"""Connections accepted in one iteration of the event loop, and file descriptors beyond the limit at most."""
_BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""
LOOPBACK = TrustedProxies(("127.0.0.1",))


@contextlib.asynccontextmanager
async def serve(
    app: RequestMiddleware,
    host: str,
    port: int,
    limits: ConnectionLimits | None = None,
    proxies: TrustedProxies = LOOPBACK,
) -> AsyncIterator[int]:
    """Serve while the block runs, and yield the port. Running requests get a moment to finish, event streams none.
    `proxies` are trusted in X-Forwarded-For. Raises SettingsError if the address cannot be used.
    """
    listening = bind_socket(host, port)
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", connection_factory(limits or ConnectionLimits(), proxies)),
        backlog=_ACCEPTED_AT_ONCE,
        forwarded_allow_ips=proxies.names,
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
        app.shutdown()
        await asyncio.wait({serving})
        listening.close()


class _Server(uvicorn.Server):
    """Server that leaves signals to the program."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept. asyncio has one number for both; the kernel's queue may be longer."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Connections queue until a server accepts them. Raises SettingsError."""
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
