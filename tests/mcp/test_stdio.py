"""Messages to and from a process, as its pipes give and take them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from mcp.client._transport import TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification

from bot.mcp.transports.stdio import child_process

NEVER_READS = 'import time; print(\'{"jsonrpc":"2.0","method":"m"}\', flush=True); time.sleep(60)'
READS = "import sys; sys.stdin.read()"
TALKS = 'for n in range(3000): print(\'{"jsonrpc":"2.0","method":"m"}\')'
READS_NO_MORE = (
    'import os, sys; os.close(0); print(\'{"jsonrpc":"2.0","method":"m"}\', flush=True); import time; time.sleep(60)'
)
NOTE = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="m", params={"text": "x" * 100_000}))


@asynccontextmanager
async def python(program: str) -> AsyncIterator[TransportStreams]:
    async with asyncio.timeout(30), child_process([sys.executable, "-c", program], {}, None, sys.stderr) as streams:
        yield streams


def children() -> set[str]:
    """The processes that were begun here and have not been seen to end."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            found.update((task / "children").read_text().split())
    return found


async def tell_for_ever(outgoing: WriteStream[SessionMessage]) -> None:
    while True:
        await outgoing.send(NOTE)


async def test_a_process_whose_start_is_called_off_has_ended_before_anybody_goes_on() -> None:
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


async def test_whoever_tells_a_process_that_does_not_read_waits_until_it_is_closed() -> None:
    async with python(NEVER_READS) as (incoming, outgoing):
        await incoming.receive()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
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
