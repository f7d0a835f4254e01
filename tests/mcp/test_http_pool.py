"""Connections that are kept open between requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import httpx2

from bot.mcp.transports.pool import KEPT_SECONDS, PoolTransport
from tests.mcp.toolboxes import until

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def keeping(connections: list[asyncio.StreamWriter]) -> AsyncIterator[str]:
    """Yield the address of a server that keeps its connections open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            writer.write(ANSWER)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for connection in connections:
            connection.close()
            await connection.wait_closed()


async def test_a_connection_is_used_again_only_while_no_server_closes_it_yet() -> None:
    connections: list[asyncio.StreamWriter] = []
    async with keeping(connections) as url, httpx2.AsyncClient(transport=PoolTransport(None, "http")) as client:
        for _ in range(2):
            await client.get(url)
        assert len(connections) == 1
        used_at = monotonic()
        await until(lambda: monotonic() > used_at + KEPT_SECONDS)
        await client.get(url)
        assert len(connections) == 2
    assert KEPT_SECONDS < 2
