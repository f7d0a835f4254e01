"""The bundled servers as a host starts them: as real processes, or in this process for tests of their answers only."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from tests.fakes.programs import python

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 60.0
HELLO = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",'
    b' "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}\n'
)


def process(server: str, env: Mapping[str, str]) -> Client:
    """Return a client that starts `python -m mcp_servers.<server>` on a Python that has it loaded. Open it inside the
    test.
    """
    command = StdioServerParameters(
        command=python(), args=["-m", f"mcp_servers.{server}"], env=dict(env), cwd=REPOSITORY
    )
    return Client(command, read_timeout_seconds=PATIENCE)


async def begun(server: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start the bare process, for tests of its settings and of signals."""
    return await start_process(server, env, on=await asyncio.to_thread(python))


async def start_process(
    server: str, env: Mapping[str, str], stdout: int = asyncio.subprocess.PIPE, on: str = sys.executable
) -> asyncio.subprocess.Process:
    """Start the bare process on an ordinary Python, for tests of its end."""
    return await asyncio.create_subprocess_exec(
        on,
        "-m",
        f"mcp_servers.{server}",
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], **env},
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )


async def shake_hands(child: asyncio.subprocess.Process) -> dict[str, Any]:
    """Send `initialize` and return the answer. The server is running afterwards."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(HELLO)
    await child.stdin.drain()
    answer: dict[str, Any] = json.loads(await asyncio.wait_for(child.stdout.readline(), PATIENCE))
    return answer


def text_of(result: CallToolResult) -> str:
    """Return the only text of a result."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def structured_output(result: CallToolResult) -> dict[str, Any]:
    """Return the structured output of a successful call."""
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return dict(result.structured_content)
