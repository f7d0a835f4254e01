"""Limit of servers that start at the same moment."""

from __future__ import annotations

import asyncio

from bot.mcp.server.retry import StartLimiter
from tests.mcp.toolboxes import until


async def test_no_more_than_there_is_room_for_start_at_the_same_moment() -> None:
    start_limiter = StartLimiter(2)
    inside = most = passed = 0

    async def start() -> None:
        nonlocal inside, most, passed
        async with start_limiter.acquire(60):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1
            passed += 1

    async with asyncio.timeout(30):
        await asyncio.gather(*(start() for _ in range(10)))
    assert (most, passed) == (2, 10)


async def test_one_that_takes_long_makes_room_for_the_next() -> None:
    start_limiter = StartLimiter(1)
    inside: set[str] = set()

    async def start(name: str) -> None:
        async with start_limiter.acquire(0.02):
            inside.add(name)
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(start(name)) for name in "abc"]
    await until(lambda: inside == set("abc"))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_room_is_given_back_once() -> None:
    start_limiter = StartLimiter(1)
    third = asyncio.Event()

    async def start() -> None:
        async with start_limiter.acquire(60):
            third.set()

    async with asyncio.timeout(30), start_limiter.acquire(60) as make_room:
        make_room()
        make_room()
        async with start_limiter.acquire(60):
            starting = asyncio.create_task(start())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not third.is_set()
        await starting
