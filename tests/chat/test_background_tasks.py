"""Background tasks per user: limits, ends, and notices about rejected messages."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from bot.chat.background_tasks import BackgroundTasks
from bot.platforms.slack.messages import PerUserRate
from tests.fakes.parts import until


async def test_a_user_over_the_limit_gets_one_notice_at_a_time_and_holds_up_no_other() -> None:
    background_tasks, opened, said = BackgroundTasks(most_per_user=2), asyncio.Event(), list[str]()

    async def waits() -> None:
        await opened.wait()

    async def refuse() -> None:
        said.append("enough")
        await opened.wait()

    started = [background_tasks.start_for("mallory", waits(), "errand", refuse) for _ in range(500)]
    assert sum(started) == 2
    assert background_tasks.start_for("priya", waits(), "errand", refuse)
    await asyncio.sleep(0)
    assert said == ["enough"]
    opened.set()
    await background_tasks.wait_idle()
    assert background_tasks.start_for("mallory", waits(), "errand", refuse)
    await background_tasks.close()


async def test_the_common_limit_counts_nothing_for_the_user_who_met_it() -> None:
    background_tasks, opened = BackgroundTasks(most=1, most_per_user=1), asyncio.Event()

    async def waits() -> None:
        await opened.wait()

    assert background_tasks.start(waits(), "errand")
    assert not background_tasks.start_for("priya", waits(), "errand")
    opened.set()
    await background_tasks.wait_idle()
    assert background_tasks.start_for("priya", waits(), "errand")
    await background_tasks.close()


@pytest.mark.parametrize("way", ["fails", "is cancelled before its first step"])
async def test_a_failed_task_is_released_all_the_same(way: str) -> None:
    background_tasks = BackgroundTasks(most_per_user=1)

    async def fails() -> None:
        raise ValueError(way)

    for _ in range(3):
        assert background_tasks.start_for("priya", fails(), "errand")
        if way == "fails":
            await background_tasks.wait_idle()
        else:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await background_tasks.wait_idle()


async def test_messages_that_are_refused_while_a_user_was_just_told_are_counted_in_the_next_notice() -> None:
    background_tasks, said = BackgroundTasks(notice_seconds=0.05), list[str]()

    async def send(text: str) -> None:
        said.append(text)

    for _ in range(60):
        background_tasks.send_notice("mallory", "Full.", send)
    background_tasks.send_notice("priya", "No.", send)
    await until(lambda: len(said) == 3)
    assert said == ["Full.", "No.", "Full. 58 other messages of yours were not taken either."]
    await until(lambda: not background_tasks._notices)
    background_tasks.send_notice("mallory", "Full.", send)
    await background_tasks.wait_idle()
    assert said[3:] == ["Full."]


async def test_a_notice_that_waits_is_sent_at_the_end() -> None:
    background_tasks, said = BackgroundTasks(), list[str]()

    async def send(text: str) -> None:
        said.append(text)

    for reason in ("First.", "Second.", "Third."):
        background_tasks.send_notice("mallory", reason, send)
    await background_tasks.close()
    assert said == ["First.", "Third. 1 other message of yours was not taken either."]


def test_a_user_has_a_number_of_calls_in_any_minute_and_others_their_own() -> None:
    now = 0.0
    rate = PerUserRate(2, 60.0, lambda: now)
    assert [rate.acquire("ana") for _ in range(3)] == [True, True, False]
    now = 30.0
    assert [rate.acquire("priya"), rate.acquire("ana")] == [True, False]
    now = 60.0
    assert [rate.acquire("ana") for _ in range(3)] == [True, True, False]


class Name(str):
    """A string that supports weak references."""

    __slots__ = ("__weakref__",)


async def test_users_without_running_tasks_are_forgotten() -> None:
    background_tasks, now = BackgroundTasks(notice_seconds=0.01), 0.0
    rate = PerUserRate(2, 60.0, lambda: now)

    async def work(_text: str = "") -> None: ...

    user = Name("ana")
    forgotten = weakref.ref(user)
    assert background_tasks.start_for(user, work(), "work")
    background_tasks.send_notice(user, "Full.", work)
    assert rate.acquire(user)
    del user
    await background_tasks.wait_idle()
    now = 60.0
    assert rate.acquire("priya")
    await until(lambda: forgotten() is None)
