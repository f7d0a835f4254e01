"""The news about one live connection."""

from __future__ import annotations

import asyncio

import pytest

from bot.tools.line import Line


async def news(line: Line) -> None:
    async with asyncio.timeout(5):
        await line.news()


async def test_a_change_that_is_told_while_the_tools_are_listed_is_not_lost() -> None:
    line = Line(settle=0.01)
    line.list_begins()
    line.mark_stale()
    line.list_ends()
    assert line.stale
    await news(line)


async def test_a_change_that_was_listed_is_no_news_any_more() -> None:
    line = Line(settle=0.01)
    line.list_begins()
    line.list_ends()
    line.mark_stale()
    line.list_begins()
    line.list_ends()
    assert not line.stale
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await line.news()


async def test_a_server_that_tells_of_changes_all_the_time_is_asked_once_in_a_while() -> None:
    line = Line(settle=0.1)
    line.list_begins()
    line.list_ends()
    began = asyncio.get_running_loop().time()
    for _ in range(1_000):
        line.mark_stale()
    await news(line)
    assert asyncio.get_running_loop().time() - began >= 0.09
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await line.news()


async def test_the_owner_is_idle_when_it_only_waits() -> None:
    line = Line(settle=0.01)
    idle = [line.idle]
    for happens in (line.list_begins, line.list_ends, line.doubt, line.list_ends, line.mark_stale):
        happens()
        idle.append(line.idle)
    assert idle == [True, False, True, False, True, False]
