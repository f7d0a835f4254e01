"""Opening the way to a server: a child process or an HTTP endpoint.

Called by `connection`. Both ways give the MCP library's two streams, watched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport
from bot.tools.addresses import Allowances, Resolve
from bot.tools.http_client import LARGEST_ANSWER, Guarded, http_client
from bot.tools.last_words import LastWords
from bot.tools.streams import watched


def opened(
    config: ServerConfig, words: LastWords, on_end: Callable[[], None], allowances: Allowances, resolve: Resolve
) -> AbstractAsyncContextManager[TransportStreams]:
    """The way to a server, open within the block. `words` takes what a process says before it dies; `on_end` is
    called when the other side has hung up. The `allowances` limit servers that are not the operator's.
    """
    match config.transport:
        case StdioTransport() as process:
            return watched(_stdio(process, words), on_end)
        case HttpTransport() as endpoint:
            return watched(_http(endpoint, config.tool_timeout, network(config, allowances, resolve)), on_end)


def network(config: ServerConfig, allowances: Allowances, resolve: Resolve) -> httpx2.AsyncBaseTransport:
    """The network as this server may be reached on it."""
    return httpx2.AsyncHTTPTransport() if config.from_file else Guarded(allowances, resolve)


@asynccontextmanager
async def _stdio(process: StdioTransport, words: LastWords) -> AsyncIterator[TransportStreams]:
    parameters = StdioServerParameters(
        command=process.command,
        args=list(process.args),
        env=child_environment(process),
        cwd=process.cwd,
        encoding_error_handler="replace",
    )
    async with words.listening() as errors, stdio_client(parameters, errlog=errors) as streams:
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
    endpoint: HttpTransport, longest_call: float, below: httpx2.AsyncBaseTransport
) -> AsyncIterator[TransportStreams]:
    async with (
        http_client(endpoint.headers, longest_call, below) as client,
        streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=LARGEST_ANSWER) as streams,
    ):
        yield streams
