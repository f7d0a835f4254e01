"""How often the API may be called, and trouble on demand."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.fakes.discord import Answers, Channel, Cut, Fails, FakeDiscord, Hangs, Lost, Slow, TooMany
from tests.fakes.discord_api import DiscordApi

POST = "POST /channels/{channel}/messages"


@pytest.fixture
def room(discord: FakeDiscord) -> Channel:
    """Where it is said; no time passes."""
    discord.clock.stop()
    return discord.channel("general")


async def test_a_bucket_counts_down_and_then_refuses_until_it_is_full_again(
    discord: FakeDiscord, api: DiscordApi, room: Channel
) -> None:
    left = [(await api.post(room, {"content": "x"})).headers["X-RateLimit-Remaining"] for _ in range(5)]
    assert left == ["4", "3", "2", "1", "0"]
    limited = await api.post(room, {"content": "x"})
    assert (limited.status, limited.body["global"]) == (429, False)
    assert 0 < limited.body["retry_after"] <= 5
    assert limited.headers["Via"]
    assert limited.headers["X-RateLimit-Scope"] == "user"
    assert limited.headers["Retry-After"] == "5"
    assert len(discord.posted(room)) == 5
    discord.clock.advance(5)
    assert (await api.post(room, {"content": "x"})).status == 200


async def test_every_place_has_a_bucket_of_its_own_under_one_name(
    discord: FakeDiscord, api: DiscordApi, room: Channel
) -> None:
    other = discord.channel("other")
    for _ in range(5):
        full = await api.post(room, {"content": "x"})
    fresh = await api.post(other, {"content": "x"})
    assert fresh.headers["X-RateLimit-Remaining"] == "4"
    assert fresh.headers["X-RateLimit-Bucket"] == full.headers["X-RateLimit-Bucket"]


async def test_fifty_calls_a_second_are_all_a_bot_has(discord: FakeDiscord, api: DiscordApi, room: Channel) -> None:
    rooms = [discord.channel(f"c{n}") for n in range(51)]
    said = [await api.call("GET", f"/channels/{each.id}") for each in rooms]
    assert [each.status for each in said] == [200] * 50 + [429]
    assert said[-1].body["global"] is True
    assert said[-1].headers["X-RateLimit-Global"] == "true"
    assert (await api.call("GET", "/gateway", token="")).status == 200
    discord.clock.advance(1)
    assert (await api.call("GET", f"/channels/{room.id}")).status == 200


async def test_nothing_is_limited_where_the_pace_is_not_strict(
    discord: FakeDiscord, api: DiscordApi, room: Channel
) -> None:
    discord.pace.strict = False
    said = [await api.post(room, {"content": "x"}) for _ in range(8)]
    assert {each.status for each in said} == {200}
    assert "X-RateLimit-Limit" not in said[-1].headers


async def test_faults_come_in_the_order_they_are_planned(discord: FakeDiscord, api: DiscordApi, room: Channel) -> None:
    discord.fail(POST, Fails(50013))
    discord.fail(POST, Answers(502))
    discord.fail(POST, TooMany(0.5))
    discord.fail(POST, TooMany(0.5, everywhere=True))
    assert (await api.post(room, {"content": "x"})).refusal == (403, 50013)
    assert (await api.post(room, {"content": "x"})).status == 502
    limited = [await api.post(room, {"content": "x"}) for _ in range(2)]
    assert [each.body["global"] for each in limited] == [False, True]
    assert {each.body["retry_after"] for each in limited} == {0.5}
    assert discord.posted(room) == []
    assert (await api.post(room, {"content": "x"})).status == 200
    assert [call.outcome for call in discord.calls] == ["50013", "http 502", "limited", "limited", "ok"]
    assert len(discord.calls.invalid()) == 3


async def test_a_cut_call_is_not_done_and_a_lost_one_is(discord: FakeDiscord, api: DiscordApi, room: Channel) -> None:
    for fault, posted in ((Cut(), 0), (Lost(), 1)):
        discord.fail(POST, fault)
        with pytest.raises(aiohttp.ClientError):
            await api.post(room, {"content": "x"})
        assert len(discord.posted(room)) == posted


async def test_a_slow_call_is_done_and_a_hung_one_ends_with_the_server(
    discord: FakeDiscord, api: DiscordApi, room: Channel
) -> None:
    discord.fail(POST, Slow(0.01))
    assert (await api.post(room, {"content": "x"})).status == 200
    discord.fail(POST, Hangs())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await api.post(room, {"content": "x"})
    await discord.go_down()
    await discord.come_back()
    assert (await api.post(room, {"content": "x"})).status == 200


async def test_a_route_that_is_not_there_cannot_be_made_to_fail(discord: FakeDiscord) -> None:
    with pytest.raises(AssertionError):
        discord.fail("GET /nowhere", Cut())
