"""Services for measuring turns, each a process of its own: a model service and an MCP server.

    python -m benchmarks.turn_services model     print its address, serve until standard input ends
    python -m benchmarks.turn_services tools     the same for an MCP server
    python -m benchmarks.turn_services clock     the same, and its tool returns the time of the call by `time.monotonic`

The model asks for one call, then answers in fifty pieces of four words. Both respond at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from tests.fakes.llm import Call, FakeLanguageModel, Request, Say

PIECES = 50
ANSWER = "".join(f"word{n:02d} of the answer " for n in range(PIECES))
TOOL = "echo"
ARGUMENTS = {"text": "The quick brown fox jumps over the lazy dog."}
MODEL = "bench-1"
START_SECONDS = END_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of the running model service and MCP server."""

    model: str
    tools: str


@asynccontextmanager
async def served(tools: str = "tools") -> AsyncIterator[Services]:
    """Run the model service and an MCP server, `tools` or `clock`, and yield their addresses."""
    module = "benchmarks.turn_services"
    async with program("-m", module, "model") as (_, model), program("-m", module, tools) as (_, address):
        yield Services(model, address)


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run Python with these arguments, and yield the process and the first line of its output. It ends with the block,
    because its standard input does.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        yield process, line.decode().strip()
    finally:
        process.stdin.close()
        await wait_for_end(process)


async def wait_for_end(process: asyncio.subprocess.Process) -> None:
    """Wait until a process that was told to end has ended. Kill it if it takes too long."""
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _serve_model() -> None:
    model: FakeLanguageModel

    def reply(request: Request) -> Say:
        model.requests.clear()  # thousands of requests, which no measurement reads
        messages, tools = request.body["messages"], request.body["tools"]
        if messages[-1]["role"] == "tool":
            return Say(ANSWER, pieces=PIECES)
        name = next(name for tool in tools if (name := tool["function"]["name"]).endswith(TOOL))
        return Say(calls=(Call(name, ARGUMENTS),))

    with FakeLanguageModel("openai", rule=reply) as model:
        print(model.base_url, flush=True)
        sys.stdin.read()


def _serve_tools(*, clock: bool = False) -> None:
    server = MCPServer("bench", log_level="ERROR")

    @server.tool(name=TOOL, annotations=ToolAnnotations(read_only_hint=True))
    def echo(text: str) -> str:
        """Return the text."""
        return str(time.monotonic()) if clock else text

    # asyncio sends small packets at once only on a socket whose protocol is set.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # The loop of uvicorn does not end with standard input.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_keep_alive=600)).run([listener])


if __name__ == "__main__":
    if sys.argv[1] == "model":
        _serve_model()
    else:
        _serve_tools(clock=sys.argv[1] == "clock")
