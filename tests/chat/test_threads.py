"""Messages of a thread are handled one at a time, those of others meanwhile."""

from __future__ import annotations

import asyncio

from bot.chat.message_handler import MessageContent, PlatformMessage, Threads


def in_thread(key: str) -> PlatformMessage:
    return PlatformMessage(id="1", keys=(), thread_key=key, user="ana", content=MessageContent("hi"))


async def test_the_first_holder_of_a_key_ends_before_the_next_begins() -> None:
    in_turn = Threads[PlatformMessage]()
    done: list[str] = []

    async def do(name: str, steps: int) -> None:
        async with in_turn.enter(in_thread("thread")):
            done.append(f"{name} begins")
            for _ in range(steps):
                await asyncio.sleep(0)
            done.append(f"{name} ends")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for name, steps in (("first", 9), ("second", 3), ("third", 0)):
            group.create_task(do(name, steps))
    assert done == [f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")]


async def test_other_places_do_not_wait() -> None:
    in_turn, gate = Threads[PlatformMessage](), asyncio.Event()

    async def do(place: str) -> None:
        async with in_turn.enter(in_thread(place)):
            await gate.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(do("thread"))
        async with in_turn.enter(in_thread("elsewhere")):
            gate.set()


async def test_a_cancelled_waiter_holds_up_no_other() -> None:
    in_turn, gate = Threads[PlatformMessage](), asyncio.Event()
    done: list[str] = []

    async def do(name: str) -> None:
        async with in_turn.enter(in_thread("thread")):
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
