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
from bot.tools.addresses import Allowances, Resolve
from bot.tools.child_process import child_process
from bot.tools.event_stream import event_stream
from bot.tools.http_client import Guarded, http_client
from bot.tools.last_words import LastWords
from bot.tools.launching import check_start
from bot.tools.line import Line
from bot.tools.lines import LARGEST_ANSWER
from bot.tools.oauth.bearer import Bearer
from bot.tools.oauth.carrying import Carrying
from bot.tools.plain_rpc import plain_rpc
from bot.tools.pool import pool
from bot.tools.streams import watched


def opened(
    config: ServerConfig,
    words: LastWords,
    line: Line,
    *,
    allowances: Allowances,
    resolve: Resolve,
    bearer: Bearer | None = None,
) -> AbstractAsyncContextManager[TransportStreams]:
    """The way to a server, open within the block. `words` takes what a process says before it dies; the `line` is told
    when the other side has hung up. The `allowances` limit servers that are not the operator's; the `bearer` has the
    token of one that is signed in to.
    """
    match config.transport:
        case StdioTransport() as process:
            return watched(_stdio(config, process, words, allowances), line.lose)
        case HttpTransport() as endpoint:
            below = network(config, allowances, resolve, bearer)
            client = http_client(endpoint.headers, config.longest_silence, below)
            return watched(_http(endpoint, config, client, line), line.lose)


def network(
    config: ServerConfig, allowances: Allowances, resolve: Resolve, bearer: Bearer | None = None
) -> httpx2.AsyncBaseTransport:
    """The network as this server may be reached on it, with the token of whoever is signed in."""
    below = pool() if config.from_file else Guarded(allowances, resolve)
    if bearer is None or not isinstance(config.transport, HttpTransport):
        return below
    return Carrying(below, bearer, config.transport.url)


@asynccontextmanager
async def _stdio(
    config: ServerConfig, process: StdioTransport, words: LastWords, allowances: Allowances
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
    endpoint: HttpTransport, config: ServerConfig, client: httpx2.AsyncClient, line: Line
) -> AsyncIterator[TransportStreams]:
    async with client, _spoken(endpoint, config, client, line) as streams:
        yield streams


def _spoken(
    endpoint: HttpTransport, config: ServerConfig, client: httpx2.AsyncClient, line: Line
) -> AbstractAsyncContextManager[TransportStreams]:
    match endpoint.kind:
        case HttpKind.SSE:
            return event_stream(client, endpoint.url, line.doubt)
        case HttpKind.JSONRPC:
            return plain_rpc(client, endpoint.url, config)
        case HttpKind.STREAMABLE | HttpKind.AUTO:
            return streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=LARGEST_ANSWER)
