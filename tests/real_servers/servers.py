"""Servers of other authors, from their packages.

Those from PyPI are installed with the test tools. Those from npm and the older ones are installed by `make
conformance`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, StdioTransport
from tests.node import NODE, program

OLDER_PYTHON = Path(sys.prefix) / "older" / "bin" / "python"
"""An interpreter with an older version of the MCP library."""
_LOOPBACK = Path(__file__).parent / "loopback.cjs"
_OLDER_OVER_HTTP = """
import socket, sys, uvicorn
from mcp.server.fastmcp import Context, FastMCP
server = FastMCP("older")
@server.tool()
async def count(to: int, ctx: Context) -> int:
    for n in range(to):
        await ctx.report_progress(n + 1, to)
    return to
app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])
"""


def from_pypi(module: str, *arguments: str, python: Path = Path(sys.executable), **fields: Any) -> ServerConfig:
    """Return a server that is a Python module, as a child process."""
    return ServerConfig("s", StdioTransport(str(python), ("-m", module, *arguments)), **fields)


def from_npm(package: str, *arguments: str, **fields: Any) -> ServerConfig:
    """Return a server that is a Node program, as a child process."""
    return ServerConfig("s", StdioTransport(str(NODE), (str(program(package)), *arguments)), **fields)


@contextmanager
def everything_at(way: str, kind: HttpKind) -> Iterator[ServerConfig]:
    """Serve server-everything at an address. `way` is the transport on its command line; `kind` the client's."""
    command = (str(NODE), "--require", str(_LOOPBACK), str(program("mcp-server-everything")), way)
    with _listening(command, "sse" if way == "sse" else "mcp", kind) as server:
        yield server


@contextmanager
def older_at(path: str, kind: HttpKind) -> Iterator[ServerConfig]:
    """Serve a server on the older library at an address. It uses HTTP+SSE if `path` is `sse`."""
    with _listening((str(OLDER_PYTHON), "-c", _OLDER_OVER_HTTP, path), path, kind) as server:
        yield server


@contextmanager
def _listening(command: tuple[str, ...], path: str, kind: HttpKind) -> Iterator[ServerConfig]:
    environment = {**os.environ, "PORT": "0"}
    with Popen(command, stdout=PIPE, stderr=DEVNULL, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield ServerConfig("s", HttpTransport(f"http://127.0.0.1:{port}/{path}", kind=kind))
        finally:
            process.kill()
