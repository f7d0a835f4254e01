"""What one user may have under way, and that everything is released however it ends."""

from __future__ import annotations

import asyncio

import pytest

from bot.chat.background_tasks import BackgroundTasks
from tests.fakes.parts import until


async def test_a_user_over_the_limit_is_told_once_at_a_time_and_keeps_nobody_waiting() -> None:
    errands, opened, said = BackgroundTasks(most_per_user=2), asyncio.Event(), list[str]()

    async def waits() -> None:
        await opened.wait()

    async def refuse() -> None:
        said.append("enough")
        await opened.wait()

    started = [errands.start_for("mallory", waits(), "errand", refuse) for _ in range(500)]
    assert sum(started) == 2
    assert errands.start_for("priya", waits(), "errand", refuse)
    await asyncio.sleep(0)
    assert said == ["enough"]
    opened.set()
    await errands.wait_idle()
    assert errands.start_for("mallory", waits(), "errand", refuse)
    await errands.close()


async def test_the_limit_of_all_counts_nothing_for_the_user_who_met_it() -> None:
    errands, opened = BackgroundTasks(most=1, most_per_user=1), asyncio.Event()

    async def waits() -> None:
        await opened.wait()

    assert errands.start(waits(), "errand")
    assert not errands.start_for("priya", waits(), "errand")
    opened.set()
    await errands.wait_idle()
    assert errands.start_for("priya", waits(), "errand")
    await errands.close()


@pytest.mark.parametrize("way", ["fails", "is cancelled before its first step"])
async def test_what_ends_badly_is_released_all_the_same(way: str) -> None:
    errands = BackgroundTasks(most_per_user=1)

    async def fails() -> None:
        raise ValueError(way)

    for _ in range(3):
        assert errands.start_for("priya", fails(), "errand")
        if way == "fails":
            await errands.wait_idle()
        else:
            for task in set(errands._tasks):
                task.cancel()
            await errands.wait_idle()


async def test_messages_that_are_refused_while_a_user_was_just_told_are_counted_in_the_next_notice() -> None:
    errands, said = BackgroundTasks(notice_seconds=0.05), list[str]()

    async def send(text: str) -> None:
        said.append(text)

    for _ in range(60):
        errands.refuse("mallory", "Full.", send)
    errands.refuse("priya", "No.", send)
    await until(lambda: len(said) == 3)
    assert said == ["Full.", "No.", "Full. 58 other messages of yours were not taken either."]
    await until(lambda: not errands._refused)
    errands.refuse("mallory", "Full.", send)
    await errands.wait_idle()
    assert said[3:] == ["Full."]


async def test_a_notice_that_waits_is_sent_at_the_end() -> None:
    errands, said = BackgroundTasks(), list[str]()

    async def send(text: str) -> None:
        said.append(text)

    for reason in ("First.", "Second.", "Third."):
        errands.refuse("mallory", reason, send)
    await errands.close()
    assert said == ["First.", "Third. 1 other message of yours was not taken either."]
