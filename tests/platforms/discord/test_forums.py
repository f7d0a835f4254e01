"""Forum posts as conversations, and text chat of voice and stage channels."""

from __future__ import annotations

import pytest

from bot.chat import backfill
from tests.fakes.discord import Channel, Kind
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot


def forum(place: ConnectedBot) -> Channel:
    return place.discord.channel("support", kind=Kind.FORUM)


@pytest.mark.parametrize("message_content", [True, False])
async def test_a_post_that_mentions_the_bot_is_a_question_under_its_title(message_content: bool) -> None:
    async with connected_bot(message_content=message_content) as place:
        discord, support = place.discord, forum(place)
        said = discord.post(place.priya, support, "Checkout fails", f"{discord.bot.mention} since 14:05, why?")
        await place.wait_for_messages(1)
        (message,) = place.engine.received
        assert message.text == "Checkout fails\n\nsince 14:05, why?"
        assert message.conversation == place.key(support, said.channel.id)
        assert message.context == ()
        assert [thread.id for thread in discord.threads(support)] == [said.id]


async def test_a_post_goes_on_as_the_bots_thread_and_nothing_is_said_twice(place: ConnectedBot) -> None:
    discord, support = place.discord, forum(place)
    said = discord.post(place.priya, support, "Checkout fails", f"{discord.bot.mention} why?")
    await place.wait_for_messages(1)
    discord.say(place.priya, said.channel, "and since when?")
    await place.wait_for_messages(2)
    assert place.texts == ["Checkout fails\n\nwhy?", "and since when?"]
    assert place.engine.received[1].context == ()


async def test_a_title_and_a_mention_are_a_question(place: ConnectedBot) -> None:
    place.discord.post(place.priya, forum(place), "Why does checkout fail?", place.discord.bot.mention)
    await place.wait_for_messages(1)
    assert place.texts == ["Why does checkout fail?"]


async def test_a_command_in_a_post_is_a_command(place: ConnectedBot) -> None:
    said = place.discord.post(place.priya, forum(place), "Please", f"{place.discord.bot.mention} mcp list")
    await place.discord.until(lambda: place.commands.requests)
    assert place.texts == []
    assert place.commands.requests[0].conversation.thread == said.id


async def test_a_post_that_is_not_for_the_bot_is_context_once_it_is_asked(place: ConnectedBot) -> None:
    discord, support = place.discord, forum(place)
    said = discord.post(discord.user("Sam"), support, "Checkout fails", "since 14:05")
    await place.quiet()
    assert place.texts == []
    discord.say(place.priya, said.channel, f"{discord.bot.mention} why?")
    await place.wait_for_messages(1)
    (message,) = place.engine.received
    assert message.text == "why?"
    assert message.context == ("Sam: Checkout fails\n    \n    since 14:05",)


async def test_a_post_during_a_downtime_is_answered_after_the_start(worker: ConnectedBot) -> None:
    discord, support = worker.discord, forum(worker)
    said = discord.post(worker.priya, support, "Checkout fails", f"{discord.bot.mention} why?")
    discord.clock.advance(2 * backfill.CLOCKS_DIFFER.total_seconds())
    async with worker.running():
        await worker.wait_for_messages(1)
        assert worker.texts == ["Checkout fails\n\nwhy?"]
        assert worker.engine.received[0].conversation == worker.key(support, said.id)


@pytest.mark.parametrize("kind", [Kind.VOICE, Kind.STAGE])
async def test_a_mention_in_the_text_of_a_voice_or_stage_channel_is_answered_there(
    place: ConnectedBot, kind: Kind
) -> None:
    discord, room = place.discord, place.discord.channel("standup", kind=kind)
    discord.say(place.priya, room, f"{discord.bot.mention} why?")
    await place.wait_for_messages(1)
    assert place.engine.received[0].conversation == place.key(room)
    assert discord.threads(room) == []
