"""Interactions of hostile users.

They come from another guild or platform, with forged ids, too many at a time, and from former or timed-out members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bot.chat.context import Lookups
from bot.chat.interactions import ELSEWHERE
from bot.domain.conversations import ConversationKey
from bot.domain.turns import StepStatus, ToolStep, Turn, TurnStatus, TurnView
from bot.platforms.discord import components
from bot.platforms.discord.modals import asked_about
from bot.platforms.discord.rest import MessageRef
from tests.fakes.discord import Channel, Message
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot
from tests.rendering.turns import a_reply, a_step, a_view, an_approval

Records = dict[str, tuple[Turn, ToolStep]]
BUTTON, PLAIN = 2, 2


@asynccontextmanager
async def with_approvals() -> AsyncIterator[tuple[ConnectedBot, Records]]:
    """A connected bot, and the turn and step of each approval id."""
    kept: Records = {}

    async def approval(approval_id: str) -> tuple[Turn, ToolStep] | None:
        return kept.get(approval_id)

    async with connected_bot(records=Lookups(approval=approval)) as place:
        yield place, kept


def waiting() -> TurnView:
    return a_view(a_step(StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)


def asked_in(place: ConnectedBot, kept: Records, where: ConversationKey) -> None:
    """Let a call of a conversation wait for an approval."""
    view = place.engine.knows(waiting(), where)
    step = view.steps[0]
    assert isinstance(step, ToolStep)
    kept["apr-12345678"] = (view.turn, step)


async def post_forged_buttons(place: ConnectedBot, channel: Channel, *custom_ids: str) -> Message:
    """Post a bot message with forged buttons."""
    row = [{"type": BUTTON, "style": PLAIN, "label": custom_id, "custom_id": custom_id} for custom_id in custom_ids]
    body: dict[str, Any] = {"content": "x", "components": [{"type": 1, "components": row}]}
    path = "/channels/{channel_id}/messages"
    posted = await place.rest.call("POST", path, "post", body=body, channel_id=channel.id)
    return place.discord.world.message(channel.id, posted["id"])


@pytest.mark.parametrize(
    "press", ["approve:apr-12345678:1", "view:apr-12345678:1:1", "listed:1:approve:apr-12345678:1"]
)
async def test_an_admin_of_one_server_approves_and_sees_nothing_of_another(press: str) -> None:
    async with with_approvals() as (place, kept):
        asked_in(place, kept, place.key(place.channel))
        other = place.discord.another_guild("Evil")
        mallory = place.discord.user("Mallory", admin=True, guild=other)
        card = await post_forged_buttons(place, place.discord.channel("lair", guild=other), f"cs:{press}")
        pressed = await place.discord.press(mallory, card, f"cs:{press}")
        await place.discord.until(lambda: pressed.messages)
        assert pressed.text == ELSEWHERE
        assert place.engine.decisions == []


async def test_a_member_of_both_servers_approves_only_on_the_server_of_the_call() -> None:
    async with with_approvals() as (place, kept):
        asked_in(place, kept, place.key(place.channel))
        other = place.discord.another_guild("Other")
        place.discord.join(place.priya, other)
        card = await post_forged_buttons(
            place, place.discord.channel("elsewhere", guild=other), "cs:approve:apr-12345678:1"
        )
        pressed = await place.discord.press(place.priya, card, "cs:approve:apr-12345678:1")
        await place.discord.until(lambda: pressed.messages)
        assert place.engine.decisions == []
        assert pressed.text == ELSEWHERE


async def test_a_call_of_another_platform_is_not_decided_in_discord() -> None:
    async with with_approvals() as (place, kept):
        asked_in(place, kept, ConversationKey("slack", place.discord.guild.id, "C1", ""))
        boss = place.discord.user("Boss", admin=True)
        card = await post_forged_buttons(place, place.channel, "cs:approve:apr-12345678:1")
        pressed = await place.discord.press(boss, card, "cs:approve:apr-12345678:1")
        await place.discord.until(lambda: pressed.messages)
        assert pressed.text == ELSEWHERE
        assert place.engine.decisions == []


async def test_a_press_in_a_direct_conversation_has_the_rights_of_the_place_of_the_call() -> None:
    async with with_approvals() as (place, kept):
        other = place.discord.another_guild("Other")
        lead = place.discord.role("lead", guild=other)
        place.discord.join(place.priya, other, lead)
        ops = place.discord.role("ops", place.priya)
        elsewhere = place.discord.channel("elsewhere", guild=other)
        asked_in(place, kept, ConversationKey("discord", other.id, elsewhere.id, ""))
        card = await post_forged_buttons(place, place.discord.dm(place.priya), "cs:approve:apr-12345678:1")
        await place.discord.press(place.priya, card, "cs:approve:apr-12345678:1")
        await place.discord.until(lambda: place.engine.decisions)
        ((_, member),) = place.engine.decisions
        assert member.roles == {f"discord-role:{lead.id}"}
        assert f"discord-role:{ops.id}" not in member.roles


async def test_a_user_who_left_the_server_decides_nothing_there_from_a_direct_conversation() -> None:
    async with with_approvals() as (place, kept):
        sam = place.discord.user("Sam", admin=True)
        dm = place.discord.dm(sam)
        asked_in(place, kept, ConversationKey("discord", place.discord.guild.id, dm.id, ""))
        card = await post_forged_buttons(place, dm, "cs:approve:apr-12345678:1")
        place.discord.leave(sam)
        await place.discord.press(sam, card, "cs:approve:apr-12345678:1")
        await place.discord.until(lambda: place.engine.decisions)
        ((_, member),) = place.engine.decisions
        assert member.external
        assert not member.platform_admin


@pytest.mark.parametrize("kind", ["stop:t1", "again:t1:0", "check:t1:0", "rate:t1:bad"])
async def test_turns_of_another_server_are_not_touched(kind: str) -> None:
    opinions: list[str] = []

    async def opinion(turn_id: str, _good: bool, _by: object) -> None:
        opinions.append(turn_id)

    async with connected_bot(records=Lookups(opinion=opinion)) as place:
        place.engine.knows(a_view(a_reply(0, "The pool."), status=TurnStatus.DONE), place.key(place.channel))
        other = place.discord.another_guild("Evil")
        mallory = place.discord.user("Mallory", admin=True, guild=other)
        card = await post_forged_buttons(place, place.discord.channel("lair", guild=other), f"cs:{kind}")
        pressed = await place.discord.press(mallory, card, f"cs:{kind}")
        await place.discord.until(lambda: pressed.messages)
        assert pressed.text == ELSEWHERE
        assert (place.engine.stopped, place.engine.repeated, opinions) == ([], [], [])


@pytest.mark.parametrize(
    "custom_id",
    [
        "cs:approve:a:-1",
        "cs:approve:a:1_0",
        "cs:approve:a: 1",
        "cs:approve:a:\N{ARABIC-INDIC DIGIT ONE}",
        "cs:approve:a:\N{FULLWIDTH DIGIT ONE}",
        "cs:approve:a:99999999999999999999999999",
        "cs:view:a:1:-1",
        "cs:check:t1:-1",
        "cs:again:t1:9999999999999999999",
    ],
)
def test_a_number_that_we_do_not_write_is_no_press_of_ours(custom_id: str) -> None:
    assert components.decode(custom_id) is None


@pytest.mark.parametrize(
    "custom_id",
    [
        "cs.ask:\N{SUPERSCRIPT TWO}:1",
        "cs.ask:1:\N{ARABIC-INDIC DIGIT ONE}",
        f"cs.ask:1:{'9' * 60}",
    ],
)
def test_a_number_that_we_do_not_write_is_no_form_of_ours(custom_id: str) -> None:
    assert asked_about(custom_id) is None


@pytest.mark.parametrize(
    "text", ["\N{SUPERSCRIPT TWO}:1", "1:\N{ARABIC-INDIC DIGIT ONE}", "1:2:3", "1:", f"1:{'9' * 21}"]
)
def test_an_interaction_without_a_message_has_none(text: str) -> None:
    assert MessageRef.parse(text) is None
