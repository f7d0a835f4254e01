"""Schedule of listing a server's tools again."""

from __future__ import annotations

import asyncio

import pytest

from bot.mcp.server.capabilities import ListingSchedule
from bot.mcp.server.retry import WaitTiming
from tests.mcp.toolboxes import Clock


@pytest.fixture
def due() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def schedule(clock: Clock, due: asyncio.Event) -> ListingSchedule:
    """Return a schedule with the default times, listed now."""
    timing = WaitTiming()
    schedule = ListingSchedule(timing.settle, timing.apart, due.set, clock)
    list_tools(schedule)
    return schedule


def list_tools(schedule: ListingSchedule) -> None:
    schedule.listing_started()
    schedule.listing_succeeded()


async def is_reported(due: asyncio.Event) -> None:
    async with asyncio.timeout(30):
        await due.wait()
    due.clear()


async def is_not_reported(due: asyncio.Event) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await due.wait()


async def test_a_change_during_a_listing_is_not_lost(due: asyncio.Event) -> None:
    schedule = ListingSchedule(settle=0.01, apart=0.01, on_due=due.set)
    schedule.listing_started()
    schedule.mark_changed()
    schedule.listing_succeeded()
    assert schedule.stale
    await is_reported(due)
    assert schedule.is_due


async def test_a_change_that_was_listed_is_not_listed_again(due: asyncio.Event) -> None:
    schedule = ListingSchedule(settle=0.01, apart=0.01, on_due=due.set)
    list_tools(schedule)
    schedule.mark_changed()
    list_tools(schedule)
    assert not schedule.stale
    await is_not_reported(due)


async def test_a_cancelled_listing_is_repeated(due: asyncio.Event) -> None:
    schedule = ListingSchedule(settle=0.01, apart=0.01, on_due=due.set)
    schedule.listing_started()
    schedule.listing_cancelled()
    assert (schedule.stale, schedule.listing) == (True, False)
    await is_reported(due)


async def test_a_change_is_listed_when_the_server_is_quiet_for_a_moment(
    schedule: ListingSchedule, clock: Clock, due: asyncio.Event
) -> None:
    clock.now += 60
    schedule.mark_changed()
    is_due = [schedule.is_due]
    clock.now += 0.2
    schedule.mark_changed()
    for _ in range(2):
        clock.now += 0.2
        is_due.append(schedule.is_due)
    assert is_due == [False, False, True]
    await is_reported(due)


async def test_two_listings_are_five_seconds_apart(schedule: ListingSchedule, clock: Clock) -> None:
    schedule.mark_changed()
    clock.now += 4.9
    assert not schedule.is_due
    clock.now += 0.1
    assert schedule.is_due


async def test_a_server_that_never_stops_changing_is_listed_all_the_same(
    schedule: ListingSchedule, clock: Clock
) -> None:
    clock.now += 60
    for _ in range(49):
        schedule.mark_changed()
        clock.now += 0.1
    assert not schedule.is_due
    clock.now += 0.2
    schedule.mark_changed()
    assert schedule.is_due
