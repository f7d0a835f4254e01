"""Opening of a transport to a server, child process or HTTP, and the choice of the one to try.

Each transport yields the MCP library's two streams, instrumented: they record which requests were sent, and repair
responses that the library would reject as a whole because of one wrong item.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp.types.jsonrpc import RequestId
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from bot.domain.servers import (
    LAST_HANDSHAKE_VERSION,
    Handshake,
    HttpKind,
    HttpTransport,
    Protocol,
    ServerConfig,
    StdioTransport,
    kind_of,
)
from bot.mcp.config.checks import check_start, endpoint_fingerprint
from bot.mcp.errors import TOO_DEEP, WITHOUT_ID, RequestContext, current_request, record_request
from bot.mcp.failures import NOT_THIS_TRANSPORT, is_plain_json_rpc, named_version, root_cause
from bot.mcp.oauth.tokens import AuthTransport
from bot.mcp.sdk import IncomingStream, OutgoingStream, ReadStream, TransportStreams, WriteStream
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.output import StderrTail, StrayLine
from bot.mcp.server.status import PLAIN
from bot.mcp.transports.http import GuardedTransport, ProxyTransport, http_client
from bot.mcp.transports.json_rpc import json_rpc_client
from bot.mcp.transports.messages import CUT, LISTINGS, beside, canonical_id, repair_response, unreadable
from bot.mcp.transports.sse import sse_client
from bot.mcp.transports.stdio import child_process
from bot.mcp.transports.streamable import AnswerReader, streamable_client

log = logging.getLogger(__name__)

_KNOWN_SECONDS = 7 * 86_400.0
"""Seconds for which a cached handshake is used."""
_MODERN = frozenset((HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION))
_MANY = 100
"""Pieces of content that are repaired in a thread."""
_LISTEN = "subscriptions/listen"
"""Method of a request that is answered at the end of the connection."""


class _Requests:
    """Requests of one connection. Of those that wait for an answer the method is known."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._waiting: dict[RequestId | None, str] = {}
        self._last_id = 0
        self._has_foreign = False

    def start(self, request_id: RequestId, method: str) -> None:
        """Record a request."""
        self._waiting[canonical_id(request_id)] = method
        if isinstance(request_id, int):
            self._last_id = max(self._last_id, request_id)

    def end(self, request_id: RequestId | None) -> str:
        """Record the end of a request. Return its method; empty if it is none that waits for an answer."""
        number = canonical_id(request_id)
        method = self._waiting.pop(number, "")
        was_sent = isinstance(number, int) and 0 < number <= self._last_id
        if not method and not was_sent:
            level = logging.DEBUG if self._has_foreign else logging.WARNING
            log.log(level, "MCP server %s answered a request that was never sent, answer dropped", self._server)
            self._has_foreign = True
        return method

    @property
    def only(self) -> RequestId | None:
        """Id of the only request that waits for an answer; None if there are several or none."""
        waiting = [request_id for request_id, method in self._waiting.items() if method != _LISTEN]
        return waiting[0] if len(waiting) == 1 else None


class _Incoming(IncomingStream):
    """Read stream that repairs responses and reports the end."""

    def __init__(
        self,
        inner: ReadStream[SessionMessage | Exception],
        requests: _Requests,
        on_end: Callable[[], None],
        on_server_request: Callable[[str], None],
    ) -> None:
        self._inner = inner
        self._requests = requests
        self._on_end = on_end
        self._on_server_request = on_server_request

    @property
    def last_context(self) -> Any:
        """Sender's context, on transports that carry one. The name is the library's."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            item = await self._inner.receive()
        except anyio.EndOfStream:
            self._on_end()
            raise
        match item:
            case SessionMessage(message=JSONRPCError(id=None, error=error)):
                return self._without_id(error)
            case SessionMessage(message=JSONRPCError(id=request_id)):
                self._requests.end(request_id)
            case SessionMessage(message=JSONRPCResponse(id=request_id) as response):
                method = self._requests.end(request_id)
                is_cut = response.result.pop(CUT, False)
                if is_cut and method not in LISTINGS:
                    return unreadable(request_id, TOO_DEEP)
                content = response.result.get("content")
                is_long = method in LISTINGS or (isinstance(content, list) and len(content) > _MANY)
                response.result = await beside(repair_response, method, response.result, is_long=is_long)
            case SessionMessage(message=JSONRPCRequest(method=method)):
                self._on_server_request(method)
        return item

    def _without_id(self, error: ErrorData) -> SessionMessage | Exception:
        """Return an error without an id as the error of the only request. It may still be about something else, such
        as a notification, unless its code says that a message could not be read (JSON-RPC 2.0, response object).
        """
        only = self._requests.only if error.code in (PARSE_ERROR, INVALID_REQUEST) else None
        if only is None:
            return StrayLine(error.message.encode("utf-8", "replace"))
        self._requests.end(only)
        quote = None if error.message == WITHOUT_ID else error.message
        failure = ErrorData(code=INVALID_REQUEST, message=WITHOUT_ID, data=quote)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=only, error=failure))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Outgoing(OutgoingStream):
    """Write stream that records the method of requests and marks their context as sent. A set protocol is offered in
    the handshake, where the library offers the newest of the older era.
    """

    def __init__(self, inner: WriteStream[SessionMessage], requests: _Requests, protocol: Protocol) -> None:
        super().__init__()
        self._inner = inner
        self._requests = requests
        self._protocol = protocol

    async def _take(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest(id=request_id, method=method):
                self._requests.start(request_id, method)
                if method == "initialize" and self._protocol.begins_with_handshake:
                    item.message.params = {**(item.message.params or {}), "protocolVersion": self._protocol.value}
                attempt = current_request()
                # Marked before the write, because a cancelled write may have reached the server.
                attempt.sent = True
                try:
                    await self._inner.send(item)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    attempt.sent = False
                    raise
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                self._requests.end((params or {}).get("requestId"))
                await self._inner.send(item)
            case JSONRPCResponse() | JSONRPCError():
                # Answers to the server's elicitations run in the context of their call, whose record they must not
                # change.
                with record_request():
                    await self._inner.send(item)
            case _:
                await self._inner.send(item)

    async def aclose(self) -> None:
        await super().aclose()
        await self._inner.aclose()


@asynccontextmanager
async def open_transport(
    config: ServerConfig,
    shared: ConnectionDependencies,
    stderr: StderrTail,
    *,
    on_end: Callable[[], None],
    on_request_failed: Callable[[], None],
    on_server_request: Callable[[str], None],
) -> AsyncIterator[TransportStreams]:
    """Open the transport to a server for the block.

    `stderr` receives the process's standard error. `on_end` is called when the other side closes, `on_request_failed`
    when a request fails whose failure the library does not report, `on_server_request` with the method of each request
    of the server.
    """
    match config.transport:
        case StdioTransport() as process:
            transport = _stdio(config, process, stderr, shared)
        case HttpTransport() as endpoint:
            transport = _http(endpoint, config, build_network(config, shared), on_request_failed)
    async with transport as (incoming, outgoing):
        requests = _Requests(config.name)
        yield (
            _Incoming(incoming, requests, on_end, on_server_request),
            _Outgoing(outgoing, requests, config.protocol),
        )


def build_network(config: ServerConfig, shared: ConnectionDependencies) -> httpx2.AsyncBaseTransport:
    """Return the network for this server, with its token if it has one."""
    below = ProxyTransport() if config.from_file else GuardedTransport(shared.allowances, shared.resolve)
    token_provider = shared.token_provider(config)
    if token_provider is None or not isinstance(config.transport, HttpTransport):
        return below
    return AuthTransport(below, token_provider, config.transport.url)


@asynccontextmanager
async def _stdio(
    config: ServerConfig, process: StdioTransport, stderr: StderrTail, shared: ConnectionDependencies
) -> AsyncIterator[TransportStreams]:
    await asyncio.to_thread(check_start, config, shared.allowances.templates())
    command, leave_seconds = (process.command, *process.args), shared.timing.waits.leave
    async with (
        stderr.open() as errors,
        child_process(command, child_environment(process), process.cwd, errors, leave_seconds) as streams,
    ):
        errors.close()
        yield streams


def child_environment(process: StdioTransport) -> dict[str, str]:
    """Return the environment of a server's process on top of the library's defaults: the operator's variables, and
    a PATH on which `python` is this interpreter.
    """
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))))
    return {"PATH": path, **process.env}


@asynccontextmanager
async def _http(
    endpoint: HttpTransport,
    config: ServerConfig,
    network: httpx2.AsyncBaseTransport,
    on_request_failed: Callable[[], None],
) -> AsyncIterator[TransportStreams]:
    reads = endpoint.kind in (HttpKind.STREAMABLE, HttpKind.AUTO)
    read_answers = partial(AnswerReader, config.name) if reads else None
    client = http_client(endpoint.headers, config.max_read_timeout, network, read_answers)
    transport: AbstractAsyncContextManager[TransportStreams]
    match endpoint.kind:
        case HttpKind.SSE:
            transport = sse_client(client, endpoint.url, on_request_failed)
        case HttpKind.JSONRPC:
            transport = json_rpc_client(client, endpoint.url, config)
        case HttpKind.STREAMABLE | HttpKind.AUTO:
            transport = streamable_client(client, endpoint.url)
    async with client, transport as streams:
        yield streams


class ProtocolNegotiation:
    """Choice of the next attempt's transport and mode. `known` is the cached handshake of server version `version`.
    `clock` is in epoch seconds.
    """

    def __init__(
        self,
        config: ServerConfig,
        known: Handshake | None,
        clock: Callable[[], float] = time.time,
        *,
        version: str = "",
    ) -> None:
        self._config = config
        self._version = version
        self._clock = clock
        fits = known is not None and known.place == endpoint_fingerprint(config)
        is_kind = known is not None and kind_of(config.transport) in (known.transport, HttpKind.AUTO)
        self._known = known if fits and is_kind else None
        self._ignores_known = False
        self._without_discovery = False
        self._other_kind: HttpKind | None = None
        self._named: Protocol | None = None

    @property
    def config(self) -> ServerConfig:
        """The server with the transport to try, never `auto`, and the version that it has named."""
        config, transport = self._config, self._config.transport
        if self._named:
            config = replace(config, protocol=self._named)
        if not isinstance(transport, HttpTransport) or transport.kind is not HttpKind.AUTO:
            return config
        known = self._cached_handshake
        found = HttpKind.SSE if known and known.transport == HttpKind.SSE else HttpKind.STREAMABLE
        return replace(config, transport=replace(transport, kind=self._other_kind or found))

    @property
    def mode(self) -> str:
        """Negotiation mode of the MCP library. HTTP+SSE is older than the discovery request."""
        if (protocol := self._named or self._config.protocol) is not Protocol.AUTO:
            return "legacy" if protocol.begins_with_handshake else "auto"
        discovers = not (self._without_discovery or self._cached_handshake or self._kind == HttpKind.SSE)
        return "auto" if discovers else "legacy"

    def protocol_label(self, protocol: str) -> str:
        """Return the protocol to display. A server without MCP does not speak this version."""
        return PLAIN if self._kind == HttpKind.JSONRPC else protocol

    def on_connected(self, protocol: str, version: str = "") -> Handshake | None:
        """Return the handshake to cache after a connection, or None. `version` is the server's own version: a
        changed one is negotiated again. A set protocol leaves nothing behind for the time when it is not set.
        """
        if self._config.protocol is not Protocol.AUTO:
            self._other_kind = None
            return None
        another = self._cached_handshake is not None and version != self._version
        self._version = version
        if another or protocol in MODERN_PROTOCOL_VERSIONS:
            self._known = None
        elif self._cached_handshake is None or self._cached_handshake.transport != self._kind:
            self._known = Handshake(self._kind, endpoint_fingerprint(self._config), self._clock())
        self._ignores_known = self._without_discovery = False
        self._other_kind = None
        return self._known

    def on_failed(self, error: BaseException | None, attempt: RequestContext, *, hung_up: bool) -> bool:
        """Record a failed attempt. Return True if another way is to be tried at once.

        `hung_up`: the server closed the connection. No `error` means a timeout. Both can be caused by the discovery
        request, so the next attempt leaves it out. The cached handshake is ignored in every second attempt, because
        the server may have changed.
        """
        discovers = self.mode == "auto"
        is_auto_streamable = kind_of(self._config.transport) == HttpKind.AUTO and self._kind == HttpKind.STREAMABLE
        self._ignores_known = self._cached_handshake is not None
        self._without_discovery = discovers and (hung_up or error is None)
        tried = self._named or LAST_HANDSHAKE_VERSION
        self._named = named_version(error, attempt, tried) if self._config.protocol is Protocol.AUTO else None
        self._other_kind = _other_kind(error, attempt) if is_auto_streamable and not self._named else None
        return bool(self._named or self._other_kind)

    @property
    def _kind(self) -> str:
        return kind_of(self.config.transport)

    @property
    def _cached_handshake(self) -> Handshake | None:
        if self._known is None or self._ignores_known or self._config.protocol is not Protocol.AUTO:
            return None
        return self._known if 0 <= self._clock() - self._known.found_at < _KNOWN_SECONDS else None


def _other_kind(error: BaseException | None, attempt: RequestContext) -> HttpKind | None:
    """Return the transport of a server that rejected streamable HTTP like one of HTTP+SSE (MCP specification
    2026-07-28, basic/transports, backwards compatibility), or that speaks JSON-RPC without MCP; None for others.
    """
    if is_plain_json_rpc(error):
        return HttpKind.JSONRPC
    cause = None if error is None else root_cause(error)
    modern = isinstance(cause, MCPError) and cause.code in _MODERN
    return HttpKind.SSE if attempt.status in NOT_THIS_TRANSPORT and not attempt.failure and not modern else None
