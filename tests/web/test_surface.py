"""HTTP as a surface: delivery needs no client, and the current tokens define the roles of a user."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bot.domain.api_clients import ApiClient, ApiRole
from bot.domain.conversations import HTTP, Author, ConversationKey
from bot.domain.turns import Notice, NoticeTarget, PostedMessage
from bot.engine.surfaces import Surfaces
from bot.errors import NotFound
from bot.web.surface import ApiSurface, Subscriptions, Uploads
from tests.fakes.parts import ANA
from tests.web.test_turn_streams import KEY, at

CI = Author(HTTP, "ci", "ci")
THERE = ConversationKey(HTTP, "slack:T1", "ci", "1")


async def test_a_view_is_delivered_with_and_without_followers() -> None:
    surface = ApiSurface(Subscriptions(), Uploads())
    assert [drawn async for drawn in surface.deliver(at(1), {})] == [PostedMessage("stream", "out")]
    assert Surfaces([surface]).find(KEY) is surface
    assert Surfaces([surface]).find(ConversationKey("slack", "T1", "C1", "1")) is None


async def test_rights_follow_the_token_as_it_is_now() -> None:
    surface = ApiSurface(Subscriptions(), Uploads())
    tokens = {"ci": ApiClient("ci", ApiRole.APPROVER, "slack:T1")}

    async def find(name: str) -> ApiClient | None:
        return tokens.get(name)

    waiting = asyncio.create_task(surface.member(CI, THERE))
    await asyncio.sleep(0)
    assert not waiting.done()  # the bot is not open yet
    surface.set_client_lookup(find)
    member = await waiting
    assert (member.author, member.external, "api-role:approver" in member.roles) == (CI, False, True)
    elsewhere = await surface.member(CI, ConversationKey(HTTP, "slack:T2", "ci", "1"))
    assert (elsewhere.external, elsewhere.roles) == (True, frozenset())
    tokens.clear()
    assert (await surface.member(CI, THERE)).external
    assert (await surface.member(ANA, THERE)).external


async def test_images_are_kept_until_they_were_read_and_the_oldest_go_first() -> None:
    surface = ApiSurface(Subscriptions(), Uploads(most=10))
    one, two = (surface.uploads.store(data, "image-1.png", "image/png") for data in (b"123456", b"7890"))
    assert (await surface.fetch(one), await surface.fetch(two)) == (b"123456", b"7890")
    three = surface.uploads.store(b"abc", "image-1.png", "image/png")
    with pytest.raises(NotFound):
        await surface.fetch(one)
    assert await surface.fetch(three) == b"abc"
    surface.uploads.drop(two)
    surface.uploads.drop(two)
    assert surface.uploads.size == 3


async def test_the_sender_of_the_most_images_loses_only_their_own() -> None:
    uploads = Uploads(most=10)
    mine = uploads.store(b"123", "image-1.png", "image/png", "ci")
    flood = [uploads.store(b"1234", "image-1.png", "image/png", "mallory") for _ in range(5)]
    assert uploads.read(mine) == b"123"
    assert uploads.read(flood[-1]) == b"1234"
    for gone in flood[:-1]:
        with pytest.raises(NotFound):
            uploads.read(gone)
    for each in (mine, *flood):
        uploads.drop(each)
    assert uploads.size == 0
    uploads.store(b"more than all", "image-1.png", "image/png", "ci")
    assert uploads.size == 0


async def test_a_notice_outside_a_turn_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await ApiSurface(Subscriptions(), Uploads()).post_notice(NoticeTarget(str(KEY)), Notice("Still\nwaiting"))
    assert "api:default:ana:1: Still waiting" in caplog.text
