"""Missing permissions of the bot: users get a notice, and retries end."""

from __future__ import annotations

import pytest

from bot.chat.message_handler import NOTHING_SAID
from bot.domain.commands import Reply
from bot.domain.turns import TurnStatus
from bot.errors import DeliveryFailed
from bot.platforms.discord.app import DiscordSurface
from bot.platforms.discord.responders import SENT_DIRECTLY
from tests.fakes.discord import Channel, Fails, Permission
from tests.platforms.discord.command_bot import command_bot
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.rendering.turns import a_reply, a_view

POST, PATCH = "POST /channels/{channel}/messages", "PATCH /channels/{channel}/messages/{message}"
HOUR = 3_600.0


def thread_of(place: ConnectedBot) -> Channel:
    said = place.discord.say(place.priya, place.channel, "please")
    return place.discord.thread(place.priya, place.channel, "please", said)


async def test_a_long_answer_that_cannot_be_attached_is_begun_and_said_to_be_cut_off(worker: ConnectedBot) -> None:
    thread = thread_of(worker)
    worker.channel.forbid(worker.discord.bot, Permission.ATTACH_FILES)
    view = a_view(a_reply(0, "word " * 5_000), status=TurnStatus.DONE)
    await worker.draw(worker.engine.knows(view, worker.key(worker.channel, thread.id)))
    first, *_, last = worker.public_messages(thread)
    assert first.content.startswith("word")
    assert "The whole answer, 24,999 characters, could not be attached: the bot lacks the permission" in last.content
    assert last.files == []
    assert "answer.md" not in last.content


async def test_a_message_that_is_too_old_to_be_edited_is_posted_anew_where_nothing_can_be_replied_to(
    worker: ConnectedBot,
) -> None:
    worker.surface = DiscordSurface(worker.rest, worker.people, clock=worker.discord.clock.now)
    thread = thread_of(worker)
    key = worker.key(worker.channel, thread.id)
    await worker.draw(worker.engine.knows(a_view(a_reply(0, "one")), key))
    worker.discord.clock.advance(2 * HOUR)
    worker.channel.forbid(worker.discord.bot, Permission.READ_MESSAGE_HISTORY)
    worker.discord.fail(PATCH, Fails(30046), 20)
    await worker.draw(worker.engine.knows(a_view(a_reply(0, "two")), key))
    assert worker.public_messages(thread)[-1].content.startswith("two")
    assert worker.public_messages(thread)[-1].reply_to is None


async def test_a_hint_is_said_where_nothing_can_be_replied_to(place: ConnectedBot) -> None:
    place.channel.forbid(place.discord.bot, Permission.READ_MESSAGE_HISTORY)
    place.discord.say(place.priya, place.channel, place.discord.bot.mention)
    await place.discord.until(place.public_messages)
    assert [message.content for message in place.public_messages()] == [NOTHING_SAID]


async def test_a_command_that_was_said_is_answered_where_nothing_can_be_replied_to() -> None:
    async with command_bot([Reply("All is well.")]) as place:
        place.channel.forbid(place.discord.bot, Permission.READ_MESSAGE_HISTORY)
        place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} mcp list")
        await place.reads("All is well.", channel=place.discord.dm(place.priya))
        await place.discord.until(lambda: [message.content for message in place.discord.bot_messages(place.channel)])
        assert [message.content for message in place.discord.bot_messages(place.channel)] == [SENT_DIRECTLY]


@pytest.mark.parametrize("trouble", ["locked", "deleted", "no thread messages", "expelled", "unseen"])
async def test_a_place_in_which_the_bot_can_say_nothing_any_more_ends_a_drawing_for_good(
    worker: ConnectedBot, trouble: str
) -> None:
    thread = thread_of(worker)
    view = worker.engine.knows(
        a_view(a_reply(0, "an answer"), status=TurnStatus.DONE), worker.key(worker.channel, thread.id)
    )
    match trouble:
        case "locked":
            worker.discord.archive(thread, locked=True)
        case "deleted":
            worker.discord.remove(thread)
        case "no thread messages":
            worker.channel.forbid(worker.discord.bot, Permission.SEND_MESSAGES_IN_THREADS)
        case "expelled":
            worker.discord.expel(worker.discord.guild)
        case _:
            worker.channel.forbid(worker.discord.bot, Permission.VIEW_CHANNEL)
    with pytest.raises(DeliveryFailed) as told:
        await worker.draw(view)
    assert told.value.permanent
    assert told.value.cause
    assert len(worker.discord.calls.of(POST)) <= 2
