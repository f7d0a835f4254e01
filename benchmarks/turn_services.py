"""Services for measuring turns, each a process of its own: a model service and an MCP server.

    python -m benchmarks.turn_services model     print its address, serve until standard input ends
    python -m benchmarks.turn_services tools     MCP server on standard input and output

The model asks for one call, then answers in fifty pieces. Both respond at once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from tests.fakes.llm import Call, FakeLanguageModel, Request, Say

PIECES = 50
ANSWER = "".join(f"word{n:02d} " for n in range(PIECES))
TOOL = "echo"
ARGUMENTS = {"text": "The quick brown fox jumps over the lazy dog."}
MODEL = "bench-1"
TOOLS_PROGRAM = (sys.executable, "-m", "benchmarks.turn_services", "tools")


@asynccontextmanager
async def served_model() -> AsyncIterator[str]:
    """Yield the address of a running model service."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.turn_services", "model", stdin=subprocess.PIPE, stdout=subprocess.PIPE
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

    server.run("stdio")


if __name__ == "__main__":
    {"model": _serve_model, "tools": _serve_tools}[sys.argv[1]]()
