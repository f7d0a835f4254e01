"""Workspaces that reject some kinds of blocks, and channels without the bot."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.chat.actions import UNEXPECTED_ERROR
from bot.chat.interactions import ASKED_DIRECTLY
from bot.chat.users import AudiencePolicy
from bot.domain.commands import Reply, Table
from bot.domain.turns import TurnStatus
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.platforms.slack.test_action_codec import draw_view, waiting
from tests.rendering.turns import a_reply, a_view

TABLE = "| name | state |\n|---|---|\n| notes | on |\n| weather | off |"


def kinds(place: ConnectedBot) -> list[str]:
    """Return the block types of the last message in the channel."""
    return [str(block["type"]) for block in place.slack.bot_messages(place.channel)[-1].blocks]


async def answer_with_a_table(place: ConnectedBot, turn_id: str) -> None:
    view = a_view(a_reply(0, TABLE), status=TurnStatus.DONE)
    await draw_view(place, replace(view, turn=replace(view.turn, id=turn_id)))


async def test_a_table_that_the_workspace_refuses_is_aligned_text_from_then_on(worker: ConnectedBot) -> None:
    worker.slack.world.unsupported_blocks |= {"table", "context_actions"}
    for number in range(2):
        worker.slack.calls.clear()
        await answer_with_a_table(worker, f"t{number}")
        refused = [call for call in worker.slack.calls.of("chat.postMessage") if call.outcome == "invalid_blocks"]
        assert len(refused) == (1 if number == 0 else 0)
        message = worker.slack.bot_messages(worker.channel)[-1]
        assert "weather  off" in json.dumps(message.blocks)
        assert "Good answer" in json.dumps(message.blocks)
        assert not {"table", "context_actions"} & set(kinds(worker))


async def test_a_refused_table_is_tried_again_after_an_hour_because_one_refusal_may_be_a_mistake(
    worker: ConnectedBot,
) -> None:
    worker.slack.world.unsupported_blocks |= {"table"}
    await answer_with_a_table(worker, "t1")
    worker.slack.world.unsupported_blocks.clear()
    await answer_with_a_table(worker, "t2")
    assert "table" not in kinds(worker)
    worker.slack.clock.advance(3601)
    await answer_with_a_table(worker, "t3")
    assert "table" in kinds(worker)


async def test_a_card_keeps_its_buttons_where_the_workspace_takes_plain_sections_only(place: ConnectedBot) -> None:
    place.slack.world.unsupported_blocks |= {"table", "context_actions", "rich_text"}
    card = await draw_view(place, waiting())
    assert "rich_text" not in kinds(place)
    await place.slack.press(place.priya, card, "cs.approve")
    await place.slack.until(lambda: place.engine.decisions)


async def test_the_reply_to_a_command_is_shown_with_older_blocks() -> None:
    reply = Reply("Servers", Table(("name", "state"), (("notes", "on"),)))
    async with connected_bot(answers=[[reply]]) as place:
        place.slack.world.unsupported_blocks |= {"table"}
        await place.slack.command(place.priya, "/mcp", "list", place.channel)
        await place.slack.until(lambda: place.whispers(place.priya))
        (message,) = [message for message in place.slack.bot_messages(place.channel) if message.ephemeral_to]
        assert "notes" in json.dumps(message.blocks)
        assert UNEXPECTED_ERROR not in json.dumps(message.blocks)


async def test_a_layout_that_is_wrong_with_older_blocks_too_is_not_learned(worker: ConnectedBot) -> None:
    worker.slack.world.unsupported_blocks |= {"rich_text", "section"}
    await answer_with_a_table(worker, "t1")
    worker.slack.world.unsupported_blocks.clear()
    await answer_with_a_table(worker, "t2")
    assert "table" in kinds(worker)


@pytest.mark.parametrize("kind", ["channel", "group"])
async def test_a_question_about_a_message_of_a_channel_without_the_bot_is_answered_directly(
    place: ConnectedBot, kind: str
) -> None:
    elsewhere = place.slack.channel("elsewhere", place.priya, kind=kind)  # type: ignore[arg-type]
    elsewhere.members.remove(place.slack.bot.id)
    said = place.slack.say(place.priya, elsewhere, "checkout is broken & slow")
    await place.slack.shortcut(place.priya, "cs.ask", said)
    await place.slack.until(lambda: place.slack.modals(place.priya))
    await place.slack.submit(place.priya, {"question": "since when?"})
    await place.slack.until(lambda: place.engine.received)
    (message,) = place.engine.received
    direct = place.slack.dm(place.priya)
    assert message.conversation.channel == direct.id
    assert [line.lower() for line in message.context] == ["priya: checkout is broken & slow"]
    (anchor,) = place.slack.bot_messages(direct)
    assert anchor.ts == message.conversation.thread
    assert "since when?" in anchor.text
    assert "checkout is broken &amp; slow" in anchor.text
    await place.slack.until(lambda: place.whispers(place.priya, elsewhere) == [ASKED_DIRECTLY])


async def test_a_guests_command_in_a_channel_without_the_bot_gets_a_sentence() -> None:
    async with connected_bot(audience=AudiencePolicy()) as place:
        gus = place.slack.user("Gus", guest="multi")
        elsewhere = place.slack.channel("elsewhere", gus)
        elsewhere.members.remove(place.slack.bot.id)
        await place.slack.command(gus, "/mcp", "list", elsewhere)
        await place.slack.until(lambda: place.slack.bot_messages(elsewhere))
        (message,) = place.slack.bot_messages(elsewhere)
        assert message.ephemeral_to == gus.id
        assert "guests" in message.text
