"""Slash commands outside of the bot's guilds: in direct messages and by user install."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.chat.interactions import ASKED_DIRECTLY
from bot.chat.users import NOT_FOR_STRANGERS
from bot.domain.commands import Field, Form, Reply, ReplyAction
from bot.domain.conversations import ConversationKey
from bot.engine.prompt.messages import UNREAD
from bot.platforms.discord.app_commands import ASK_ABOUT_THIS
from tests.fakes.discord import Answer, Asked, Channel, FakeDiscord, Interaction, User
from tests.platforms.discord.command_bot import CommandBot, command_bot
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot

POST = "POST /channels/{channel}/messages"


def direct(discord: FakeDiscord, user: User) -> ConversationKey:
    """Return the key of the direct channel of the bot and a user of its first guild."""
    return ConversationKey("discord", discord.guild.id, discord.dm(user).id, "")


def far_away(discord: FakeDiscord, user: User) -> Channel:
    """Return a channel in a guild without the bot; this user owns the guild."""
    guild = discord.another_guild("Far away", with_bot=False)
    discord.join(user, guild)
    guild.owner_id = user.id
    discord.install(user)
    return discord.channel("lounge", guild=guild)


@asynccontextmanager
async def running_user_bot(*answers: list[Reply | Form]) -> AsyncIterator[tuple[CommandBot, Channel]]:
    """A bot with user install. Sam is no admin here, and uses the commands in his own guild."""
    async with command_bot(*answers, user_install=True) as place:
        yield place, far_away(place.discord, place.sam)


async def wait_for_reply(place: CommandBot, typed: Interaction) -> None:
    """Wait for the reply."""
    await place.discord.until(lambda: typed.messages)


# In direct messages


@pytest.mark.parametrize("who", ["priya", "sam"])
async def test_a_slash_command_in_a_direct_message_has_the_rights_of_the_users_server(who: str) -> None:
    async with command_bot([Reply("Two servers.")]) as place:
        user: User = getattr(place, who)
        dm = place.discord.dm(user)
        typed = await place.discord.command(user, "mcp list", dm)
        assert typed.answered is Answer.MESSAGE
        await place.reads("Two servers.", user, dm)
        assert place.last_invocation.conversation == direct(place.discord, user)
        assert place.last_invocation.member.platform_admin == (who == "priya")
        assert not place.last_invocation.member.external
        assert not place.discord.calls.failed_calls()


async def test_names_are_suggested_in_a_direct_message() -> None:
    async with command_bot() as place:
        offered = await place.discord.suggest(place.sam, "mcp show", place.discord.dm(place.sam), "server", "no")
        assert [choice["value"] for choice in offered] == ["notes"]


async def test_a_form_opens_in_a_direct_message() -> None:
    async with command_bot([Form("add", "Add a server", (Field("name", "Name"),))], [Reply("Added.")]) as place:
        dm = place.discord.dm(place.priya)
        typed = await place.discord.command(place.priya, "mcp add", dm)
        assert typed.answered is Answer.MODAL
        await place.discord.submit(place.priya, {"Name": "jira"})
        await place.reads("Added.", place.priya, dm)
        assert place.last_submission.conversation == direct(place.discord, place.priya)


async def test_a_stranger_gets_nothing_in_a_direct_message() -> None:
    async with command_bot() as place:
        mallory = place.discord.user("Mallory", stranger=True)
        dm = place.discord.dm(mallory)
        typed = await place.discord.command(mallory, "mcp list", dm)
        await wait_for_reply(place, typed)
        assert NOT_FOR_STRANGERS in str(typed.messages[0].components)
        assert place.commands.requests == []
        assert await place.discord.suggest(mallory, "mcp show", dm, "server") == []


# User install


async def test_commands_go_along_with_a_user_only_where_the_portal_allows_it() -> None:
    async with command_bot() as place:
        assert {tuple(command["integration_types"]) for command in place.discord.app.commands[""]} == {(0,)}
    async with command_bot(user_install=True) as place:
        assert {tuple(command["integration_types"]) for command in place.discord.app.commands[""]} == {(0, 1)}


async def test_in_a_server_without_the_bot_a_command_is_one_in_the_direct_conversation() -> None:
    async with running_user_bot([Reply("Two servers.", actions=(ReplyAction("Again", ("mcp", "list")),))]) as (
        place,
        lounge,
    ):
        typed = await place.discord.command(place.sam, "mcp list", lounge)
        await wait_for_reply(place, typed)
        (answer,) = typed.messages
        assert "Two servers." in str(answer.components)
        assert answer.ephemeral_to == place.sam.id
        assert place.last_invocation.conversation == direct(place.discord, place.sam)
        # Sam owns the other guild. Here he is an ordinary member.
        assert not place.last_invocation.member.platform_admin
        place.commands.answers = [[Reply("Still two.")]]
        await place.discord.press(place.sam, answer, "Again")
        await place.discord.until(lambda: "Still two." in str(answer.components))
        assert place.last_invocation.conversation == direct(place.discord, place.sam)
        assert not place.last_invocation.member.platform_admin
        assert not place.discord.calls.of(POST)
        assert not place.discord.calls.failed_calls()


async def test_between_users_a_command_is_answered_to_its_user_alone() -> None:
    async with running_user_bot([Reply("Two servers.")]) as (place, _):
        private = place.discord.private(place.priya, place.sam)
        typed = await place.discord.command(place.sam, "mcp list", private)
        await wait_for_reply(place, typed)
        assert typed.messages[0].ephemeral_to == place.sam.id
        assert place.last_invocation.conversation == direct(place.discord, place.sam)
        offered = await place.discord.suggest(place.sam, "mcp show", private, "server", "no")
        assert [choice["value"] for choice in offered] == ["notes"]


async def test_an_admin_of_a_server_without_the_bot_has_no_rights() -> None:
    async with command_bot(user_install=True) as place:
        mallory = place.discord.user("Mallory", stranger=True)
        lounge = far_away(place.discord, mallory)
        for channel in (lounge, place.discord.private(mallory, place.sam)):
            typed = await place.discord.command(mallory, "mcp list", channel)
            await wait_for_reply(place, typed)
            assert NOT_FOR_STRANGERS in str(typed.messages[0].components)
        assert place.commands.requests == []
        assert not place.discord.calls.of("POST /users/@me/channels")


async def test_in_a_server_with_the_bot_an_installed_command_is_one_of_that_server() -> None:
    async with running_user_bot([Reply("Here.")]) as (place, _):
        await place.discord.command(place.sam, "mcp list", place.channel)
        await place.reads("Here.", place.sam)
        assert place.last_invocation.conversation == place.key()


async def asked_far_away(place: ConnectedBot) -> None:
    """Let Priya choose the menu entry at Mallory's message, in a guild without the bot."""
    discord = place.discord
    sam = place.priya
    lounge = far_away(discord, sam)
    mallory = discord.user("Mallory", stranger=True)
    discord.join(mallory, lounge.guild)  # type: ignore[arg-type]
    await discord.until(lambda: ASK_ABOUT_THIS in [command["name"] for command in discord.app.commands.get("", [])])
    said = discord.say(mallory, lounge, "checkout is broken")
    chosen = await discord.shortcut(sam, ASK_ABOUT_THIS, said)
    assert chosen.answered is Answer.MODAL


async def test_a_question_about_a_message_where_the_bot_is_not_is_answered_directly() -> None:
    async with connected_bot(user_install=True) as place:
        await asked_far_away(place)
        sent = await place.discord.submit(place.priya, {"question": "since when?"})
        await place.wait_for_messages(1)
        (message,) = place.engine.received
        assert (message.text, message.context) == ("since when?", ("Mallory: checkout is broken",))
        assert message.conversation == direct(place.discord, place.priya)
        await place.discord.until(lambda: ASKED_DIRECTLY in str([m.components for m in sent.messages]) + sent.text)
        assert all(answer.ephemeral_to == place.priya.id for answer in sent.messages)
        (anchor,) = place.public_messages(place.discord.dm(place.priya))
        (asked,) = [used for used in place.discord.interactions if used.kind is Asked.MODAL_SUBMIT]
        where = f"{asked.channel.guild.id}/{asked.channel.id}" if asked.channel.guild else ""
        assert f"asks about this: since when? <https://discord.com/channels/{where}/" in anchor.content
        assert not place.discord.fetched_addresses(anchor)
        assert not place.discord.calls.failed_calls()


async def test_a_message_where_the_bot_is_not_cannot_be_read_by_another_process() -> None:
    async with connected_bot(user_install=True) as place:
        await asked_far_away(place)
        await place.stop()
        async with place.running("two"):
            await place.discord.submit(place.priya, {"question": "since when?"})
            await place.wait_for_messages(1)
            assert place.engine.received[0].context == (UNREAD,)
