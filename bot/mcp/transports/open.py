"""Opening the way to a server: a child process or an HTTP endpoint.

Called by `session`. Each way gives the MCP library's two streams, watched.
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
from bot.mcp.oauth.auth_transport import AuthTransport
from bot.mcp.oauth.token_provider import TokenProvider
from bot.mcp.response_repair import repair_response
from bot.mcp.stderr_tail import StderrTail
from bot.mcp.transports.http_client import GuardedTransport, http_client
from bot.mcp.transports.http_pool import pool
from bot.mcp.transports.json_rpc import json_rpc_client
from bot.mcp.transports.ndjson import LARGEST_ANSWER
from bot.mcp.transports.sse import sse_client
from bot.mcp.transports.stdio import child_process

# -------------------- instrumented
# A transport's two streams, watched: who was lost, what was sent, and answers repaired on the way in.
#
# Wrapped around every transport by `open`. Knows JSON-RPC frames, not what they mean.

_REPAIRED = ("tools/list", "tools/call", "resources/list", "resources/templates/list", "prompts/list")


@asynccontextmanager
async def instrument(
    transport: AbstractAsyncContextManager[TransportStreams], on_end: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """The transport's streams; `on_end` is called when the other side has hung up."""
    async with transport as (incoming, outgoing):
        methods: dict[str, str] = {}
        yield _Incoming(incoming, methods, on_end), _Outgoing(outgoing, methods)


class _Incoming:
    """Reads messages, repairs the answers whose method is known and tells when there are no more."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], methods: dict[str, str], on_end: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._methods = methods
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """The sender's context, for transports that carry one; the library asks for it by this name."""
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
    """Writes messages, remembers what was asked and marks the asker's attempt as sent."""

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
                # What the server has asked meanwhile is answered in the surroundings of the call that it is about, and
                # how that goes is not how the call goes.
                with request_context.begin():
                    await self._inner.send(item)
            case _:
                await self._inner.send(item)

    async def _send_request(self, item: SessionMessage) -> None:
        attempt = request_context.current()
        # Marked before and not after: a write that is cancelled half-way may have reached the server.
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
    """The way to a server, open within the block. `words` takes what a process says before it dies; the `line` is told
    when the other side has hung up. The `allowances` limit servers that are not the operator's; the `bearer` has the
    token of one that is signed in to.
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
    """The network as this server may be reached on it, with the token of whoever is signed in."""
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
    """What a server's process gets on top of the library's short list of harmless variables: what the operator gave
    it, and a PATH on which `python` is the interpreter this program runs on.
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
