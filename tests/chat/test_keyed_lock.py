"""Locks per key: one holder for each key, concurrent holders of different keys."""

from __future__ import annotations

import asyncio

from bot.chat.message_handler import KeyedLock


async def test_the_first_holder_of_a_key_ends_before_the_next_begins() -> None:
    in_turn = KeyedLock()
    done: list[str] = []

    async def do(name: str, steps: int) -> None:
        async with in_turn.acquire("thread"):
            done.append(f"{name} begins")
            for _ in range(steps):
                await asyncio.sleep(0)
            done.append(f"{name} ends")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for name, steps in (("first", 9), ("second", 3), ("third", 0)):
            group.create_task(do(name, steps))
    assert done == [f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")]


async def test_other_places_do_not_wait() -> None:
    in_turn, gate = KeyedLock(), asyncio.Event()

    async def do(place: str) -> None:
        async with in_turn.acquire(place):
            await gate.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(do("thread"))
        async with in_turn.acquire("elsewhere"):
            gate.set()


async def test_a_cancelled_waiter_holds_up_no_other() -> None:
    in_turn, gate = KeyedLock(), asyncio.Event()
    done: list[str] = []

    async def do(name: str) -> None:
        async with in_turn.acquire("thread"):
            await gate.wait()
            done.append(name)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        first, second = group.create_task(do("first")), group.create_task(do("second"))
        group.create_task(do("third"))
        await asyncio.sleep(0)
        second.cancel()
        gate.set()
        await first
    assert done == ["first", "third"]
