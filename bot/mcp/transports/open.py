"""Opening the way to a server: a child process or an HTTP endpoint.

Called by `session`. Each way gives the MCP library's two streams, watched.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, StdioTransport
from bot.mcp.addresses import AllowedTargets, Resolve
from bot.mcp.connection_events import ConnectionEvents
from bot.mcp.launch_check import check_start
from bot.mcp.oauth.auth_transport import AuthTransport
from bot.mcp.oauth.token_provider import TokenProvider
from bot.mcp.stderr_tail import StderrTail
from bot.mcp.transports.http_client import GuardedTransport, http_client
from bot.mcp.transports.http_pool import pool
from bot.mcp.transports.instrumented import instrument
from bot.mcp.transports.json_rpc import json_rpc_client
from bot.mcp.transports.ndjson import LARGEST_ANSWER
from bot.mcp.transports.sse import sse_client
from bot.mcp.transports.stdio import child_process


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
