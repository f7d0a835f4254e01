"""Processes over standard input and output: their messages line by line, and lines that are too long."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client._transport import TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification

from bot.mcp.transports.stdio import LineReader, LineTooLong, child_process

LEAVE = 0.3
NEVER_READS = 'import time; print(\'{"jsonrpc":"2.0","method":"m"}\', flush=True); time.sleep(60)'
READS = "import sys; sys.stdin.read()"
TALKS = 'for n in range(3000): print(\'{"jsonrpc":"2.0","method":"m"}\')'
READS_NO_MORE = (
    'import os, sys; os.close(0); print(\'{"jsonrpc":"2.0","method":"m"}\', flush=True); import time; time.sleep(60)'
)
NOTE = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="m", params={"text": "x" * 100_000}))


@asynccontextmanager
async def python(program: str) -> AsyncIterator[TransportStreams]:
    async with (
        asyncio.timeout(30),
        child_process([sys.executable, "-c", program], {}, None, sys.stderr, LEAVE) as streams,
    ):
        yield streams


def children() -> set[str]:
    """Return the ids of this process's children, including zombies."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            found.update((task / "children").read_text().split())
    return found


async def tell_for_ever(outgoing: WriteStream[SessionMessage]) -> None:
    while True:
        await outgoing.send(NOTE)


async def test_a_cancelled_start_returns_after_its_process_has_ended() -> None:
    before = children()
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with python(READS) as (incoming, _):
            await incoming.receive()
    assert scope.cancelled_caught
    assert children() <= before


async def test_a_process_that_talks_and_talks_leaves_everybody_else_their_turns() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with python(TALKS) as (incoming, _):
        besides = asyncio.create_task(others())
        heard = [message async for message in incoming]
        besides.cancel()
    assert len(heard) == 3000
    assert turns >= 3000 // 64, "one turn for every two buffers of messages"


async def test_a_writer_to_a_process_that_does_not_read_waits_until_the_close() -> None:
    async with python(NEVER_READS) as (incoming, outgoing):
        await incoming.receive()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await tell_for_ever(outgoing)
        waits = asyncio.create_task(outgoing.send(NOTE))
        await asyncio.sleep(0)
    with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):
        await waits


async def test_a_process_that_reads_no_more_is_told_nothing_and_hung_up_on() -> None:
    async with python(READS_NO_MORE) as (incoming, outgoing):
        await incoming.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await tell_for_ever(outgoing)
        with pytest.raises(anyio.EndOfStream):
            await incoming.receive()


BODY = {"content": [{"type": "text", "text": 'she said \\"id\\":7} and "id":8}' + "x" * 3000}]}


def feed_lines(lines: LineReader, data: bytes, size: int) -> list[bytes | LineTooLong]:
    return [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)), st.integers(1, 60))
def test_lines_are_the_same_however_they_are_cut_into_chunks(lines: list[bytes], size: int) -> None:
    assert feed_lines(LineReader(40), b"".join(line + b"\n" for line in lines), size) == lines


@given(st.integers(1, 100), st.binary(min_size=41, max_size=2000).filter(lambda line: b"\n" not in line))
def test_a_line_that_is_too_long_keeps_its_ends_and_the_next_is_whole(size: int, long: bytes) -> None:
    found = feed_lines(LineReader(40), b"before\n" + long + b"\nafter\n", size)
    assert found == [b"before", LineTooLong(long[:512], long[-512:]), b"after"]


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "result": BODY},
        {"id": 7, "result": BODY, "jsonrpc": "2.0"},
        {"id": 7, "jsonrpc": "2.0", "result": BODY},
        {"result": BODY, "jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "2.0", "error": {"code": 1, "message": "x" * 3000}, "id": 7},
        {"result": BODY, "id": 7, "jsonrpc": "2.0"},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_request_of_a_long_line_is_known_from_its_ends(message: object, separators: tuple[str, str]) -> None:
    assert too_long(json.dumps(message, separators=separators)).answers == 7


def test_an_id_may_be_a_text() -> None:
    assert too_long(json.dumps({"jsonrpc": "2.0", "id": "a-7", "result": BODY})).answers == "a-7"


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": BODY},
        {"jsonrpc": "2.0", "method": "roots/list", "params": BODY, "id": 7},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": BODY},
        {"result": BODY, "jsonrpc": "2.0"},
        {"result": {"text": "x" * 3000 + '{"id":7}'}, "jsonrpc": "2.0"},
        {"result": {"text": "x" * 3000, "id": 7}},
        [7, "x" * 3000],
    ],
)
def test_a_response_to_an_unknown_request_belongs_to_none(message: object) -> None:
    assert too_long(json.dumps(message)).answers is None


def too_long(line: str) -> LineTooLong:
    (found,) = feed_lines(LineReader(1000), line.encode() + b"\n", 64)
    assert isinstance(found, LineTooLong)
    return found
