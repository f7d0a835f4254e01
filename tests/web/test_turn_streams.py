"""Subscriptions to a turn: live if this process runs it, from the database if another process does."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import aclosing
from typing import Any

import pytest

from bot.domain.conversations import ConversationKey
from bot.domain.turns import Turn, TurnInput, TurnStatus, TurnView
from bot.errors import DatabaseUnavailable, NotFound
from bot.web.surface import Subscriptions
from tests.fakes.parts import ANA, until

KEY = ConversationKey("api", "default", "ana", "1")
TURN = Turn("t1", KEY, 1, ANA, TurnInput("hello"), TurnStatus.RUNNING, 0.0)
PATIENCE = 60.0


def at(revision: int, status: TurnStatus = TurnStatus.RUNNING, **moment: Any) -> TurnView:
    return TurnView(dataclasses.replace(TURN, status=status), (), revision, **moment)


class Rows:
    """The stored turn, and the number of its reads."""

    def __init__(self, *views: TurnView | Exception) -> None:
        self.views = list(views)
        self.reads = 0

    async def read(self, _turn_id: str) -> TurnView:
        self.reads += 1
        view = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if isinstance(view, Exception):
            raise view
        return view


async def seen_by(following: Subscriptions, rows: Rows) -> list[TurnView]:
    async with asyncio.timeout(PATIENCE), aclosing(following.views("t1", rows.read)) as views:
        return [view async for view in views]


async def test_a_turn_of_another_process_is_read_from_the_rows_until_its_end() -> None:
    rows = Rows(at(1), at(1), at(2), DatabaseUnavailable("away"), at(2), at(3, TurnStatus.DONE))
    assert await seen_by(Subscriptions(poll=0.001), rows) == [at(1), at(2), at(3, TurnStatus.DONE)]


async def test_views_of_this_process_come_at_once_and_rows_take_nothing_back() -> None:
    following, rows, seen = Subscriptions(poll=0.005), Rows(at(1)), list[TurnView]()

    async def follow() -> None:
        async with aclosing(following.views("t1", rows.read)) as views:
            async for view in views:
                seen.append(view)

    task = asyncio.create_task(follow())
    await until(lambda: len(seen) == 1)
    following.publish(at(1, streaming="a long"))
    await until(lambda: len(seen) == 2)
    before = rows.reads
    await until(lambda: rows.reads > before + 2)  # rows do not hold streamed text
    following.publish(at(1, streaming="a long answer"))
    await until(lambda: len(seen) == 3)
    following.publish(at(2, TurnStatus.DONE))
    async with asyncio.timeout(PATIENCE):
        await task
    assert [view.streaming for view in seen] == ["", "a long", "a long answer", ""]
    assert following.subscriber_count == 0


async def test_a_slow_follower_skips_to_the_newest_and_no_older_view_comes_after_it() -> None:
    following, rows = Subscriptions(poll=60), Rows(at(1))
    async with asyncio.timeout(PATIENCE), aclosing(following.views("t1", rows.read)) as views:
        assert await anext(views) == at(1)
        for revision in range(2, 100):
            following.publish(at(revision))
        following.publish(at(50))
        assert (await anext(views)).revision == 99
        following.publish(at(98))
        following.publish(at(100, TurnStatus.DONE))
        assert [view.revision async for view in views] == [100]


async def test_many_followers_of_a_turn_read_it_no_more_often_than_one() -> None:
    following, rows = Subscriptions(poll=0.1), Rows(at(1))
    tasks = [asyncio.create_task(seen_by(following, rows)) for _ in range(50)]
    await until(lambda: following.subscriber_count == 50 and rows.reads >= 52)
    rows.views = [at(2, TurnStatus.DONE)]
    seen = await asyncio.gather(*tasks)
    assert all(each[-1].revision == 2 for each in seen)
    assert rows.reads < 150  # one read for each follower at first, then shared reads


async def test_a_place_in_the_queue_is_news_and_the_same_place_is_not() -> None:
    queued = [at(1, TurnStatus.QUEUED, ahead=ahead) for ahead in (2, 2, 1, 1)]
    rows = Rows(*queued, at(2, TurnStatus.DONE))
    assert [view.ahead for view in await seen_by(Subscriptions(poll=0.001), rows)] == [2, 1, 0]


async def test_following_ends_where_the_turn_is_gone() -> None:
    following = Subscriptions(poll=0.001)
    with pytest.raises(NotFound):
        await seen_by(following, Rows(at(1), NotFound("gone")))
    assert following.subscriber_count == 0


async def test_a_wait_ends_with_the_view_that_is_enough_and_not_with_its_row() -> None:
    following, rows, written = Subscriptions(), Rows(at(1)), at(1, streaming="So far.")

    def is_enough(view: TurnView) -> bool:
        following.publish(written)
        return view.streaming != ""

    assert await following.wait("t1", rows.read, PATIENCE, is_enough) == written
    assert await following.wait("t1", rows.read, 0, is_enough) == at(1)
    ended = at(2, TurnStatus.DONE)
    assert await following.wait("t1", Rows(ended).read, PATIENCE, lambda view: view.turn.status.ended) == ended
