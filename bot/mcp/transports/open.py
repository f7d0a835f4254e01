"""Opening of a transport to a server: child process or HTTP.

Each transport yields the MCP library's two streams, instrumented.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
import httpx2
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, StdioTransport
from bot.mcp import request_context
from bot.mcp.addresses import AllowedTargets, Resolve
from bot.mcp.connection_events import ConnectionEvents
from bot.mcp.launch_check import check_start
from bot.mcp.oauth.tokens import AuthTransport, TokenProvider
from bot.mcp.response_repair import repair_response
from bot.mcp.stderr_tail import StderrTail
from bot.mcp.transports.http_client import GuardedTransport, http_client
from bot.mcp.transports.http_pool import pool
from bot.mcp.transports.json_rpc import json_rpc_client
from bot.mcp.transports.ndjson import LARGEST_ANSWER
from bot.mcp.transports.sse import sse_client
from bot.mcp.transports.stdio import child_process

# -------------------- instrumented streams

_REPAIRED = ("tools/list", "tools/call", "resources/list", "resources/templates/list", "prompts/list")


@asynccontextmanager
async def instrument(
    transport: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Yield the transport's streams, instrumented. `on_end` is called when the other side closes the connection."""
    async with transport as (incoming, outgoing):
        methods: dict[str, str] = {}
        yield _Incoming(incoming, methods, on_end), _Outgoing(outgoing, methods)


class _Incoming:
    """Read stream that repairs responses and reports the end."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], methods: dict[str, str], on_end: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._methods = methods
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """Sender's context, on transports that carry one. The name is the library's."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            return self._repair(await self._inner.receive())
        except anyio.EndOfStream:
            self._on_end()
            raise

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _repair(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception):
            return item
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            method = self._methods.pop(str(message.id), "")
            if method and isinstance(message, JSONRPCResponse):
                message.result = repair_response(method, message.result)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Incoming:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _Outgoing:
    """Write stream that records the method of requests and marks their context as sent."""

    def __init__(self, inner: WriteStream[SessionMessage], methods: dict[str, str]) -> None:
        self._inner = inner
        self._methods = methods

    async def send(self, item: SessionMessage) -> None:
        match item.message:
            case JSONRPCRequest(id=request_id, method=method):
                if method in _REPAIRED:
                    self._methods[str(request_id)] = method
                await self._send_request(item)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                self._methods.pop(str((params or {}).get("requestId")), None)
                await self._inner.send(item)
            case JSONRPCResponse() | JSONRPCError():
                # Answers to the server's elicitations run in the context of their call, whose record they must not
                # change.
                with request_context.begin():
                    await self._inner.send(item)
            case _:
                await self._inner.send(item)

    async def _send_request(self, item: SessionMessage) -> None:
        attempt = request_context.current()
        # Marked before the write, because a cancelled write may have reached the server.
        attempt.sent = True
        try:
            await self._inner.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            attempt.sent = False
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Outgoing:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def open_transport(
    config: ServerConfig,
    words: StderrTail,
    line: ConnectionEvents,
    *,
    allowances: AllowedTargets,
    resolve: Resolve,
    bearer: TokenProvider | None = None,
) -> AbstractAsyncContextManager[TransportStreams]:
    """Open the transport to a server for the block.

    `words` receives the process's stderr; `line` is notified when the other side closes. `allowances` limit the
    servers of admins; `bearer` has the token of a server with OAuth.
    """
    match config.transport:
        case StdioTransport() as process:
            return instrument(_stdio(config, process, words, allowances), line.mark_closed)
        case HttpTransport() as endpoint:
            below = network(config, allowances, resolve, bearer)
            client = http_client(endpoint.headers, config.max_read_timeout, below)
            return instrument(_http(endpoint, config, client, line), line.mark_closed)


def network(
    config: ServerConfig, allowances: AllowedTargets, resolve: Resolve, bearer: TokenProvider | None = None
) -> httpx2.AsyncBaseTransport:
    """Return the network for this server, with its token if it has one."""
    below = pool() if config.from_file else GuardedTransport(allowances, resolve)
    if bearer is None or not isinstance(config.transport, HttpTransport):
        return below
    return AuthTransport(below, bearer, config.transport.url)


@asynccontextmanager
async def _stdio(
    config: ServerConfig, process: StdioTransport, words: StderrTail, allowances: AllowedTargets
) -> AsyncIterator[TransportStreams]:
    await asyncio.to_thread(check_start, config, allowances.templates())
    command = (process.command, *process.args)
    async with (
        words.listening() as errors,
        child_process(command, child_environment(process), process.cwd, errors) as streams,
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
    endpoint: HttpTransport, config: ServerConfig, client: httpx2.AsyncClient, line: ConnectionEvents
) -> AsyncIterator[TransportStreams]:
    async with client, _spoken(endpoint, config, client, line) as streams:
        yield streams


def _spoken(
    endpoint: HttpTransport, config: ServerConfig, client: httpx2.AsyncClient, line: ConnectionEvents
) -> AbstractAsyncContextManager[TransportStreams]:
    match endpoint.kind:
        case HttpKind.SSE:
            return sse_client(client, endpoint.url, line.mark_suspect)
        case HttpKind.JSONRPC:
            return json_rpc_client(client, endpoint.url, config)
        case HttpKind.STREAMABLE | HttpKind.AUTO:
            return streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=LARGEST_ANSWER)
