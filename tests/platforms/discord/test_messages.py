"""Messages that become turns: the real discord.py against the fake server."""

from __future__ import annotations

import pytest

from bot.chat.message_handler import WITHOUT_WORDS
from bot.chat.users import NOT_FOR_STRANGERS
from bot.domain.conversations import ConversationKey
from bot.platforms.discord.messages import CALL_ME
from tests.fakes.discord import Channel, Fails, Permission, Slow
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot


def thread_of(place: ConnectedBot) -> Channel:
    (thread,) = place.discord.threads(place.channel)
    return thread


async def ask_in_channel(place: ConnectedBot, text: str = "why?") -> Channel:
    """Let Priya ask in #incidents, and return the thread of the answer."""
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} {text}")
    await place.wait_for_messages(1)
    return thread_of(place)


# Conversations of answers


async def test_a_mention_opens_a_thread_named_after_the_question_and_becomes_one_turn_in_it(
    place: ConnectedBot,
) -> None:
    discord = place.discord
    said = discord.say(place.priya, place.channel, f"{discord.bot.mention} why **502**?\nsince 14:05")
    await place.wait_for_messages(1)
    (message,) = place.engine.received
    assert message.text == "why **502**?\nsince 14:05"
    assert message.author.principal == f"discord:{place.priya.id}"
    assert message.conversation == place.key(place.channel, said.id)
    assert message.keys == (f"discord:{said.id}",)
    assert message.context == ()
    assert (thread_of(place).id, thread_of(place).name) == (said.id, "why 502?")


async def test_a_mention_of_the_bots_own_role_is_a_mention_of_the_bot(place: ConnectedBot) -> None:
    place.discord.say(place.priya, place.channel, f"{place.discord.bot_role.mention} why?")
    await place.wait_for_messages(1)
    assert place.texts == ["why?"]


async def test_a_thread_that_is_at_the_question_already_is_where_it_is_answered(place: ConnectedBot) -> None:
    place.discord.fail("POST /channels/{channel}/messages/{message}/threads", Fails(160004))
    said = place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
    await place.wait_for_messages(1)
    assert place.engine.received[0].conversation == place.key(place.channel, said.id)


@pytest.mark.parametrize("missing", [Permission.CREATE_PUBLIC_THREADS, Permission.SEND_MESSAGES_IN_THREADS])
async def test_without_the_right_to_open_threads_a_question_is_answered_in_place(
    worker: ConnectedBot, missing: Permission
) -> None:
    discord = worker.discord
    worker.channel.forbid(discord.bot, missing)
    async with worker.running():
        discord.say(worker.priya, worker.channel, f"{discord.bot.mention} why?")
        await worker.wait_for_messages(1)
        assert worker.engine.received[0].conversation == worker.key(worker.channel)
        assert discord.threads(worker.channel) == []
        assert discord.calls.failed_calls() == []


async def test_a_right_that_was_lost_a_moment_ago_ends_in_place_too(place: ConnectedBot) -> None:
    route = "POST /channels/{channel}/messages/{message}/threads"
    place.discord.fail(route, Fails(50013))
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?")
    await place.wait_for_messages(1)
    assert place.engine.received[0].conversation == place.key(place.channel)


async def test_a_reply_to_an_answer_in_the_channel_goes_on_there(worker: ConnectedBot) -> None:
    discord = worker.discord
    worker.channel.forbid(discord.bot, Permission.CREATE_PUBLIC_THREADS)
    async with worker.running():
        discord.say(worker.priya, worker.channel, f"{discord.bot.mention} why?")
        await worker.wait_for_messages(1)
        posted = await worker.rest.call(
            "POST",
            "/channels/{channel_id}/messages",
            "answer",
            body={"content": "because", "allowed_mentions": {"parse": []}},
            channel_id=worker.channel.id,
        )
        answer = discord.world.message(worker.channel.id, posted["id"])
        discord.reply(worker.priya, answer, "and since when?")
        await worker.wait_for_messages(2)
        assert worker.texts == ["why?", "and since when?"]
        assert {each.conversation for each in worker.engine.received} == {worker.key(worker.channel)}
        assert worker.engine.received[1].context == ()


async def test_a_direct_message_needs_no_mention_and_belongs_to_the_server_of_its_author(place: ConnectedBot) -> None:
    dm = place.discord.dm(place.priya)
    place.discord.say(place.priya, dm, "hello")
    await place.wait_for_messages(1)
    (message,) = place.engine.received
    assert message.conversation == ConversationKey("discord", place.discord.guild.id, dm.id, "")
    assert message.author.name == "Priya"


# Addressed and ignored messages


async def test_a_reply_to_the_bot_without_a_ping_turns_a_thread_to_it_again(place: ConnectedBot) -> None:
    discord = place.discord
    sam, role = discord.user("Sam"), discord.role("Database")
    thread = await ask_in_channel(place)
    answer = discord.say(discord.bot, thread, "The pool.")
    discord.say(place.priya, thread, f"{role.mention} who changed it?")
    discord.say(sam, thread, "I did")
    discord.reply(place.priya, answer, "and since when?", ping=False)
    discord.say(place.priya, thread, "and how?")
    await place.quiet(thread)
    assert place.texts == ["why?", "and since when?", "and how?"]
    assert {each.conversation for each in place.engine.received} == {place.key(place.channel, thread.id)}


async def test_an_archived_thread_goes_on_at_a_new_message(worker: ConnectedBot) -> None:
    discord = worker.discord
    thread = discord.thread(worker.priya, worker.channel, "it")
    discord.archive(thread)
    async with worker.running():
        discord.say(worker.priya, thread, f"{discord.bot.mention} why?")
        await worker.wait_for_messages(1)
        assert worker.engine.received[0].conversation == worker.key(worker.channel, thread.id)


async def test_a_question_that_was_deleted_again_is_not_answered(
    place: ConnectedBot, caplog: pytest.LogCaptureFixture
) -> None:
    # The event of its deletion is lost.
    place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} why?").deleted = True
    await place.discord.until(lambda: "is gone" in caplog.text)
    await place.quiet()
    assert place.texts == []
    assert place.public_messages() == []


async def test_edits_deletions_other_bots_webhooks_and_system_messages_are_ignored(place: ConnectedBot) -> None:
    discord, dm = place.discord, place.discord.dm(place.priya)
    said = discord.say(place.priya, dm, "hello")
    await place.wait_for_messages(1)
    discord.edit(said, "hello there")
    discord.delete(said)
    for robot in (discord.other_bot("Alerts"), discord.webhook("Hook")):
        discord.say(robot, place.channel, f"{discord.bot.mention} checkout is down")
    discord.unfurl(discord.say(place.priya, place.channel, "https://example.com"), "a page")
    await place.quiet()
    assert place.texts == ["hello"]


async def test_messages_of_one_place_become_turns_in_order_at_any_speed(place: ConnectedBot) -> None:
    discord = place.discord
    said = discord.say(discord.user("Sam"), place.channel, "checkout is down")
    discord.fail("GET /channels/{channel}/messages/{message}", Slow(0.3))
    discord.reply(place.priya, said, f"{discord.bot.mention} question 0")
    for number in (1, 2):
        discord.say(place.priya, place.channel, f"{discord.bot.mention} question {number}")
    await place.wait_for_messages(3)
    assert place.texts == ["question 0", "question 1", "question 2"]


# Context of a message


async def test_a_chain_of_replies_comes_along_oldest_first(place: ConnectedBot) -> None:
    discord = place.discord
    sam = discord.user("Sam")
    first = discord.say(sam, place.channel, "checkout is down")
    second = discord.reply(place.priya, first, "since the deploy")
    discord.reply(sam, second, f"{discord.bot.mention} is that so?")
    await place.wait_for_messages(1)
    assert place.engine.received[0].context == ("Sam: checkout is down", "Priya: since the deploy")


async def test_a_mention_without_words_asks_about_what_it_replies_to(place: ConnectedBot) -> None:
    first = place.discord.say(place.discord.user("Sam"), place.channel, "checkout is down")
    place.discord.reply(place.priya, first, place.discord.bot.mention)
    await place.wait_for_messages(1)
    (message,) = place.engine.received
    assert (message.text, message.context) == (WITHOUT_WORDS, ("Sam: checkout is down",))


async def test_mentions_channels_roles_times_and_emoji_are_read_as_they_look(place: ConnectedBot) -> None:
    discord = place.discord
    ops = discord.role("ops")
    text = (
        f"is {place.priya.mention} in <#{place.channel.id}> with {ops.mention} <:ok:123456789012345678>"
        " since <t:1800000000:R>? `<@1>`"
    )
    discord.say(place.priya, place.channel, f"{discord.bot.mention} {text}")
    await place.wait_for_messages(1)
    assert place.texts == ["is @Priya in #incidents with @ops :ok: since 2027-01-15 08:00 UTC? `<@1>`"]


# Without the Message Content intent


async def test_without_message_content_mentions_direct_messages_and_replies_with_a_ping_work() -> None:
    async with connected_bot(message_content=False) as place:
        discord = place.discord
        thread = await ask_in_channel(place)
        posted = await place.rest.call(
            "POST",
            "/channels/{channel_id}/messages",
            "answer",
            body={"content": "because", "allowed_mentions": {"parse": []}},
            channel_id=thread.id,
        )
        discord.reply(place.priya, discord.world.message(thread.id, posted["id"]), "since when?")
        await place.wait_for_messages(2)
        discord.say(place.priya, discord.dm(place.priya), "hello")
        await place.wait_for_messages(3)
        assert place.texts == ["why?", "since when?", "hello"]


async def test_without_message_content_a_thread_is_told_once_how_to_go_on() -> None:
    async with connected_bot(message_content=False) as place:
        discord = place.discord
        thread = await ask_in_channel(place)
        for _ in range(2):
            discord.say(place.priya, thread, "and since when?")
        await discord.until(lambda: place.public_messages(thread))
        await place.quiet(thread)
        assert [message.content for message in place.public_messages(thread)] == [CALL_ME]
        assert place.texts == ["why?"]


async def test_a_thread_that_another_process_has_told_is_not_told_again() -> None:
    async with connected_bot(message_content=False) as place:
        discord = place.discord
        thread = await ask_in_channel(place)
        discord.say(place.priya, thread, "and since when?")
        await discord.until(lambda: place.public_messages(thread))
        await place.stop()
        async with place.running():
            discord.say(place.priya, thread, "hello?")
            await place.quiet(thread)
            await discord.until(lambda: len(discord.calls.of("GET /channels/{channel}/messages")) >= 2)
        assert [message.content for message in place.public_messages(thread)] == [CALL_ME]


# Audience


async def test_a_server_that_is_not_served_is_answered_with_nothing(worker: ConnectedBot) -> None:
    discord = worker.discord
    worker.serve(frozenset({discord.guild.id}))
    other = discord.another_guild("Elsewhere")
    async with worker.running():
        lee = discord.user("Lee", guild=other)
        away = discord.channel("general", guild=other)
        discord.say(lee, away, f"{discord.bot.mention} hi")
        discord.say(lee, discord.dm(lee), "hi")
        await discord.until(lambda: worker.public_messages(discord.dm(lee)))
        await worker.quiet()
        assert worker.texts == []
        assert worker.public_messages(away) == []
        assert [message.content for message in worker.public_messages(discord.dm(lee))] == [NOT_FOR_STRANGERS]


# Commands


async def test_a_command_that_is_said_goes_to_the_commands_and_opens_no_thread(place: ConnectedBot) -> None:
    discord = place.discord
    discord.say(place.priya, place.channel, f"{discord.bot.mention} mcp list")
    await discord.until(lambda: place.commands.requests)
    (request,) = place.commands.requests
    assert (request.command, request.words) == ("mcp", ("list",))  # type: ignore[union-attr]
    assert request.conversation == place.key(place.channel)
    assert request.member.author.principal == f"discord:{place.priya.id}"
    assert discord.threads(place.channel) == []
    assert place.texts == []
