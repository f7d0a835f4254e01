"""The news about one live connection."""

from __future__ import annotations

import asyncio

import pytest

from bot.mcp.connection_events import ConnectionEvents
from bot.mcp.server.retry import ConnectionTiming


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def line(clock: Clock) -> ConnectionEvents:
    """Listed at this very moment, in the times that hold for a real one."""
    pacing = ConnectionTiming()
    line = ConnectionEvents(pacing.settle, pacing.apart, clock)
    line.listing_started()
    line.listing_finished()
    return line


async def news(line: ConnectionEvents) -> None:
    async with asyncio.timeout(30):
        await line.wait()


async def no_news(line: ConnectionEvents) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await line.wait()


async def test_a_change_that_is_told_while_the_tools_are_listed_is_not_lost() -> None:
    line = ConnectionEvents(settle=0.01, apart=0.01)
    line.listing_started()
    line.mark_list_changed()
    line.listing_finished()
    assert line.stale
    await news(line)
    assert line.is_list_due


async def test_a_change_that_was_listed_is_no_news_any_more() -> None:
    line = ConnectionEvents(settle=0.01, apart=0.01)
    line.listing_started()
    line.listing_finished()
    line.mark_list_changed()
    line.listing_started()
    line.listing_finished()
    assert not line.stale
    await no_news(line)


async def test_a_change_is_listed_when_the_server_has_said_nothing_more_for_a_moment(
    line: ConnectionEvents, clock: Clock
) -> None:
    clock.now += 60
    line.mark_list_changed()
    due = [line.is_list_due]
    clock.now += 0.2
    line.mark_list_changed()
    for _ in range(2):
        clock.now += 0.2
        due.append(line.is_list_due)
    assert due == [False, False, True]
    await news(line)


async def test_two_lists_are_five_seconds_apart(line: ConnectionEvents, clock: Clock) -> None:
    line.mark_list_changed()
    clock.now += 4.9
    assert not line.is_list_due
    clock.now += 0.1
    assert line.is_list_due


async def test_a_server_that_never_stops_telling_of_changes_is_not_waited_for_for_ever(
    line: ConnectionEvents, clock: Clock
) -> None:
    clock.now += 60
    for _ in range(49):
        line.mark_list_changed()
        clock.now += 0.1
    assert not line.is_list_due
    clock.now += 0.2
    line.mark_list_changed()
    assert line.is_list_due


async def test_a_thousand_notifications_are_one_news_and_one_alarm(clock: Clock) -> None:
    line = ConnectionEvents(settle=0.01, apart=5.0, clock=clock)
    line.listing_started()
    line.listing_finished()
    for _ in range(1_000):
        line.mark_list_changed()
    await no_news(line)
    clock.now += 5
    await news(line)
    line.listing_started()
    line.listing_finished()
    await no_news(line)


async def test_the_owner_is_idle_when_it_only_waits() -> None:
    line = ConnectionEvents(settle=0.01, apart=0.01)
    idle = [line.idle]
    for happens in (
        line.listing_started,
        line.listing_finished,
        line.mark_suspect,
        line.listing_finished,
        line.mark_list_changed,
    ):
        happens()
        idle.append(line.idle)
    assert idle == [True, False, True, False, True, True]
    async with asyncio.timeout(30):
        while line.idle:
            await line.wait()
