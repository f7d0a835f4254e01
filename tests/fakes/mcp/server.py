"""A real MCP server to test against, run as a program: `python tests/fakes/mcp/server.py stdio` or `... http`.

It imports nothing of the product. Over HTTP it listens on a port the operating system chooses and prints
`PORT <number>` when it is ready; the endpoint is `/mcp`.

    --start slow:SECONDS | silent | exit   how it misbehaves before it serves
    COUNT_FILE                             environment: the file to which the counting tools append a line per call
    FAKE_TOKEN                             environment: shown by `whoami`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import time
from pathlib import Path
from typing import Literal

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel
from starlette.applications import Starlette

server = MCPServer("fake", version="1.2.3", log_level="ERROR")


class Sum(BaseModel):
    """Two numbers added."""

    total: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True, title="Echo"))
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Take a while, in five steps."""
    for step in range(1, 6):
        await ctx.report_progress(step, 5, "copying")
        try:
            await asyncio.sleep(seconds / 5)
        except asyncio.CancelledError:
            _record("cancelled")
            raise
    return "done"


@server.tool()
def fail() -> str:
    """Fail in a way that was foreseen."""
    raise ToolError("the disk is full")


@server.tool()
def crash() -> str:
    """Fail in a way that was not."""
    raise ValueError("a detail that stays in the server")


@server.tool()
def die() -> str:
    """End the server in the middle of the call."""
    os._exit(1)


@server.tool()
def count(label: str) -> str:
    """Do something that must not happen twice."""
    return _record(label)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def count_read(label: str) -> str:
    """Look something up; doing it twice does no harm."""
    return _record(label)


@server.tool()
async def count_slow(label: str, seconds: float) -> str:
    """Do something that must not happen twice, and take a while after it."""
    done = _record(label)
    await asyncio.sleep(seconds)
    return done


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def whoami(ctx: Context) -> dict[str, str]:
    """The server's view of its caller and its environment."""
    meta = ctx.request_context.meta or {}
    return {
        "pid": str(os.getpid()),
        "authorization": (ctx.headers or {}).get("authorization", ""),
        "protocol": str(ctx.protocol_version),
        "token": os.environ.get("FAKE_TOKEN", ""),
        "path": os.environ.get("PATH", ""),
        "parent_secret": os.environ.get("PARENT_SECRET", ""),
        "key": str(dict(meta).get("countersign/idempotencyKey", "")),
        "python": sys.executable,
    }


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool and say so."""

    def extra() -> str:
        return "extra"

    name = f"extra_{len(await server.list_tools())}"
    server.add_tool(extra, name=name)
    await ctx.notify_tools_changed()
    return name


@server.tool()
async def complain(level: Literal["debug", "info", "warning", "error"], text: str, ctx: Context) -> str:
    """Say something of itself in its log."""
    await ctx.log(level, text)
    return "said"


@server.resource("note://plan", mime_type="text/plain")
def plan() -> str:
    """The task."""
    return "the plan"


@server.resource("note://by/{author}")
def by(author: str) -> str:
    """The text."""
    return f"by {author}"


@server.prompt()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Say hello to {name}"


def _record(label: str) -> str:
    path = os.environ.get("COUNT_FILE")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(label + "\n")
            file.flush()
            os.fsync(file.fileno())
    return f"recorded {label}"


async def serve_http(app: Starlette) -> None:
    """Serve on a free port of the loopback interface and print it."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # or a body waits 40 ms behind its headers
    program = uvicorn.Server(
        uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, timeout_keep_alive=60)
    )
    serving = asyncio.create_task(program.serve(sockets=[listener]))
    while not program.started and not serving.done():
        await asyncio.sleep(0.01)
    sys.stdout.write(f"PORT {listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await serving


def main() -> None:
    """Misbehave as asked, then serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http", "sse"])
    parser.add_argument("--start", default="")
    options = parser.parse_args()
    mode, _, seconds = options.start.partition(":")
    match mode:
        case "slow":
            time.sleep(float(seconds))
        case "silent":
            time.sleep(3600)
        case "exit":
            sys.stderr.write(f"cannot start: no licence found, token {os.environ.get('FAKE_TOKEN', '')}\n")
            sys.exit(3)
    match options.transport:
        case "http":
            asyncio.run(serve_http(server.streamable_http_app()))
        case "sse":
            asyncio.run(serve_http(server.sse_app()))
        case _:
            server.run()


if __name__ == "__main__":
    main()
