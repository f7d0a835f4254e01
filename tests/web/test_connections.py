"""What connections may take: over real sockets, by callers who are slow or many."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.web.application import application
from bot.web.connections import Connection
from bot.web.server import served

LIMIT = 60.0
LONG = 20_000_000
HELLO = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Hasty(Connection):
    asking_seconds = 0.2
    stalled_seconds = 0.2


class Narrow(Connection):
    most = 2


async def long(_request: Request) -> Response:
    return PlainTextResponse("x" * LONG)


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Everything that comes until the other side ends it."""
    found = bytearray()
    async with asyncio.timeout(LIMIT):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                found += piece
    return bytes(found)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
    ],
)
async def test_whoever_does_not_ask_something_whole_in_time_is_cut_off(said: bytes) -> None:
    async with served(application(), "127.0.0.1", 0, Hasty) as port, connected(port) as (reader, writer):
        writer.write(said)
        assert await ends(reader) == b""


async def test_asking_drop_by_drop_gives_no_more_time() -> None:
    async with served(application(), "127.0.0.1", 0, Hasty) as port, connected(port) as (reader, writer):
        ended = asyncio.create_task(ends(reader))
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        while not ended.done():
            writer.write(b"X-More: x\r\n")
            await asyncio.wait({ended}, timeout=0.02)
        assert await ended == b""


async def test_a_body_that_goes_on_behind_its_answer_is_not_waited_for() -> None:
    async with served(application(), "127.0.0.1", 0, Hasty) as port, connected(port) as (reader, writer):
        ended = asyncio.create_task(ends(reader))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        while not ended.done():
            writer.write(b"x")
            await asyncio.wait({ended}, timeout=0.02)
        assert (await ended).startswith(b"HTTP/1.1 200 ")


async def test_whoever_takes_nothing_of_an_answer_is_cut_off() -> None:
    slow = application(pages=[Route("/long", long)])
    async with served(slow, "127.0.0.1", 0, Hasty) as port, connected(port) as (reader, writer):
        writer.write(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(LIMIT):
            await reader.readline()
            while not reader.at_eof() and reader.exception() is None:
                # Whoever reads nothing learns of the end by writing.
                writer.write(b"\r\n")
                await asyncio.sleep(0.02)
        assert len(await ends(reader)) < LONG


async def test_a_connection_is_kept_for_the_next_question() -> None:
    async with served(application(), "127.0.0.1", 0, Hasty) as port, connected(port) as (reader, writer):
        for _ in range(3):
            writer.write(HELLO)
            async with asyncio.timeout(LIMIT):
                assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 ")
            await asyncio.sleep(2 * Hasty.asking_seconds / 3)


async def test_one_connection_too_many_is_told_to_come_again_and_finds_room_later() -> None:
    async with served(application(), "127.0.0.1", 0, Narrow) as port:
        async with connected(port) as (reader, writer), connected(port):
            writer.write(HELLO)
            async with asyncio.timeout(LIMIT):
                await reader.readuntil(b"ok\n")
            async with connected(port) as (refused, _):
                assert (await ends(refused)).startswith(b"HTTP/1.1 503 ")
        async with asyncio.timeout(LIMIT):
            while True:
                async with connected(port) as (reader, writer):
                    writer.write(HELLO)
                    if (await reader.readline()).startswith(b"HTTP/1.1 200 "):
                        break
