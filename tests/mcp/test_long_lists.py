"""A server with thousands of tools: others are served while they are read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from mcp import types

from bot.domain.servers import HttpTransport, ServerConfig
from bot.mcp.redaction import Redaction
from bot.mcp.server.capabilities import CapabilityFetcher

TOOLS = 4_000


async def test_the_event_loop_goes_on_while_thousands_of_tools_are_read() -> None:
    tools = [
        types.Tool(
            name=f"t{n}", description=f"Does thing {n}.", input_schema={"type": "object", "properties": {"a": {}}}
        )
        for n in range(TOOLS)
    ]
    listed = SimpleNamespace(tools=tools, next_cursor=None, meta=None, ttl_ms=0)

    async def list_tools(**_options: Any) -> SimpleNamespace:
        return listed

    client: Any = SimpleNamespace(
        instructions="", server_capabilities=SimpleNamespace(tools=object()), list_tools=list_tools
    )
    fetcher = CapabilityFetcher(
        ServerConfig("s", HttpTransport("https://tools.example/mcp")), Redaction(), lambda _config: frozenset()
    )
    reading = asyncio.create_task(fetcher.list_tools(client))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await reading)[0].tools) == TOOLS
    assert turns >= 10, "others had hardly a turn"
