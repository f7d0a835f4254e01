"""HTTP server in the program's own event loop: uvicorn with timeouts, a limit on pipelining and a connection table.

Each connection uses a file descriptor. Without limits, clients that send half a request or read no response would take
those of the database and the platforms. A client that pipelines requests would keep the event loop from accepting
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bot.errors import SettingsError
from bot.i18n import gettext_lazy
from bot.web.limits import ConnectionLimits, ConnectionTable, TrustedProxies

if TYPE_CHECKING:
    from bot.web.application import RequestMiddleware

_CLOSE = (b"connection", b"close")
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class LimitedProtocol(H11Protocol):
    """One connection. The head of a request must arrive within `head_seconds`; a body is read, and timed, by the route.
    uvicorn ends a connection that is idle between two requests, and serves one request of it at a time.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, table: ConnectionTable, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits = limits
        self._table = table
        self._admitted = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def address(self) -> str:
        """IP address of the peer."""
        return self.client[0] if self.client else ""

    def evict(self) -> None:
        """Close the connection now; its place in the table is already released."""
        self._admitted = False
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a new connection, or answer 503."""
        super().connection_made(transport)
        # A write that the kernel does not take at once counts as stalled, whether or not the response is over.
        transport.set_write_buffer_limits(high=0)
        self._admitted = self._table.admit(self)
        if not self._admitted:
            transport.write(_BUSY)
            transport.close()
            return
        self._start_head()
        self._update()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request, or several requests."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end("head")
        elif "head" not in self._timers:
            self._start_head()
        self._update()

    def handle_events(self) -> None:
        """Start the next request. If the peer has pipelined more, its response is the last one."""
        super().handle_events()
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or not cycle.keep_alive:
            return
        if self.conn.trailing_data[0]:
            # As with `Connection: close` in the request: the response header says so unless the response
            # has started.
            cycle.scope["headers"] = [*cycle.scope["headers"], _CLOSE]
            cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Continue with the next request."""
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        """Start the stall timer: the peer stopped reading."""
        super().pause_writing()
        if "stall" not in self._timers:
            self._start_stall()
        self._update()

    def resume_writing(self) -> None:
        """Stop the stall timer: the peer reads again."""
        super().resume_writing()
        self._end("stall")
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the resources of the connection."""
        self._end("head")
        self._end("stall")
        super().connection_lost(exc)
        if self._admitted:
            self._admitted = False
            self._table.remove(self)

    def _update(self) -> None:
        """Tell the table which side owes the next step."""
        if not self._admitted:
            return
        request_is_whole = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if request_is_whole and not self.flow.write_paused:
            self._table.work(self)
        else:
            self._table.wait(self)

    def _start_head(self) -> None:
        self._timers["head"] = self.loop.call_later(self._limits.head_seconds, self.transport.abort)

    def _start_stall(self) -> None:
        unsent = self.transport.get_write_buffer_size()

        def check() -> None:
            """Cut off a peer that has read nothing since the last check."""
            if self.transport.get_write_buffer_size() < unsent:
                self._start_stall()
            else:
                self.transport.abort()

        self._timers["stall"] = self.loop.call_later(self._limits.stalled_seconds, check)

    def _end(self, timer: str) -> None:
        if (handle := self._timers.pop(timer, None)) is not None:
            handle.cancel()


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
    limits = limits or ConnectionLimits()
    table = ConnectionTable(limits, proxies)
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", partial(LimitedProtocol, limits=limits, table=table)),
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
        info, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, socket_type, protocol, _, address = info
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(socket.socket(family, socket_type, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
            stack.pop_all()
    except OSError as error:
        raise SettingsError(
            gettext_lazy(
                "Nothing can be served at {host}, port {port}: {reason}.",
                host=host,
                port=port,
                reason=error.strerror or error,
            ),
            gettext_lazy("end what uses it, or set WEB_HOST and PORT to an address of this machine that is free"),
        ) from error
    return listening
