"""Services for measuring turns, each a process of its own: a model service and an MCP server.

    python -m benchmarks.turn_services model     print its address, serve until standard input ends
    python -m benchmarks.turn_services tools     the same for an MCP server

The model asks for one call, then answers in fifty pieces of four words. Both respond at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
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


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of the running model service and MCP server."""

    model: str
    tools: str


@asynccontextmanager
async def served() -> AsyncIterator[Services]:
    """Run both services, and yield their addresses."""
    async with _program("model") as model, _program("tools") as tools:
        yield Services(model, tools)


@asynccontextmanager
async def _program(name: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.turn_services", name, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            address = (await process.stdout.readline()).decode().strip()
        yield address
    finally:
        process.stdin.close()
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


def _serve_tools() -> None:
    server = MCPServer("bench", log_level="ERROR")

    @server.tool(name=TOOL, annotations=ToolAnnotations(read_only_hint=True))
    def echo(text: str) -> str:
        """Return the text."""
        return text

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
    {"model": _serve_model, "tools": _serve_tools}[sys.argv[1]]()
