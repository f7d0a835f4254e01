"""Commands by slash command, mention and button. Only their user sees the reply."""

from __future__ import annotations

import pytest

from bot.chat.actions import UNEXPECTED_ERROR
from bot.chat.users import NOT_FOR_STRANGERS
from bot.domain.commands import PageInfo, Reply, ReplyAction, ReplyFile, Table
from bot.domain.conversations import Author, InboundMessage
from bot.errors import DatabaseUnavailable
from bot.platforms.discord.app_commands import CHANGED
from bot.platforms.discord.interactions import NOT_SERVED
from bot.platforms.discord.responders import NOT_SENT, SENT_DIRECTLY
from tests.fakes.discord import Answer, Answers, Fails
from tests.platforms.discord.command_bot import CommandBot, command_bot

CALLBACK = "POST /interactions/{interaction}/{token}/callback"
EDIT = "PATCH /webhooks/{application}/{token}/messages/{message}"


# Slash commands


async def test_a_command_in_a_thread_is_about_that_thread() -> None:
    async with command_bot([Reply("Here.")]) as place:
        thread = place.discord.thread(place.priya, place.channel, "checkout")
        await place.discord.command(place.sam, "conversations show", thread)
        await place.reads("Here.", place.sam, thread)
        assert place.last_invocation.conversation == place.key(thread.id)
        assert not place.last_invocation.member.platform_admin


async def test_options_and_flags_become_the_words_of_a_command_line() -> None:
    async with command_bot([Reply("Added.")]) as place:
        given = {"name": "jira", "url": "https://jira.example/mcp", "auth": "header", "header": "A=env:A B=env:B"}
        flags = {"no-verify": True, "trusted": "no"}
        await place.discord.command(place.priya, "mcp add", place.channel, {**given, **flags})
        assert place.last_invocation.words == (
            "add",
            "--url=https://jira.example/mcp",
            "--auth=header",
            "--header=A=env:A",
            "--header=B=env:B",
            "--trusted=no",
            "--no-verify",
            "jira",
        )


async def test_arguments_in_json_keep_their_quotes() -> None:
    async with command_bot([Reply("Running.")]) as place:
        given = {"server": "notes", "tool": "add", "arguments": '{"text": "two words"}'}
        await place.discord.command(place.priya, "mcp run", place.channel, given)
        assert place.last_invocation.words == ("run", "notes", "add", '{"text": "two words"}')


async def test_a_slow_command_is_acknowledged_in_time_and_answered_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.platforms.discord.interactions.PATIENCE_SECONDS", 0.2)
    replies = [Reply(f"{number} of 20 checked") for number in range(20)] + [Reply("All is well.")]
    async with command_bot(replies) as place:
        place.commands.begun.clear()
        typed = await place.discord.command(place.priya, "mcp verify", place.channel, {"server": "notes"})
        assert typed.answered is Answer.DEFERRED_MESSAGE
        assert [each.thinking for each in place.visible_messages()] == [True]
        assert place.visible_messages(place.sam) == []
        place.commands.begun.set()
        answer = await place.reads("All is well.")
        assert answer.ephemeral
        assert len(place.visible_messages()) == 1
        assert 0 < len(place.discord.calls.of(EDIT)) <= 2
        assert not place.discord.calls.failed_calls()


async def test_after_a_quarter_of_an_hour_the_answer_comes_as_a_direct_message() -> None:
    async with command_bot(
        [Reply("Checking…"), Reply("All is well.", actions=(ReplyAction("Again", ("mcp", "sync")),))]
    ) as place:
        place.commands.going_on.clear()
        await place.discord.command(place.priya, "mcp verify", place.channel, {"server": "notes"})
        await place.reads("Checking…")
        place.discord.clock.advance(901)
        place.commands.going_on.set()
        dm = place.discord.dm(place.priya)
        await place.reads("All is well.", channel=dm)
        place.commands.answers = [[Reply("Synced.")]]
        await place.presses("Again", channel=dm)
        await place.reads("Synced.", channel=dm)
        assert place.last_invocation.conversation == place.key()
        assert place.last_invocation.member.platform_admin


async def test_a_user_without_direct_messages_gets_a_notice_without_the_answer() -> None:
    async with command_bot([Reply("Checking…"), Reply("The secret plan.")]) as place:
        place.commands.going_on.clear()
        await place.discord.command(place.priya, "mcp verify", place.channel, {"server": "notes"})
        await place.reads("Checking…")
        place.discord.clock.advance(901)
        place.discord.fail("POST /users/@me/channels", Fails(50007))
        place.commands.going_on.set()
        await place.reads(NOT_SENT.split(".")[0], place.sam)
        assert "secret plan" not in str(place.visible_messages(place.sam))


async def test_an_error_is_one_clear_line_to_the_asker() -> None:
    async with command_bot() as place:
        place.commands.answers = [[Reply("Running.", message=by_hand(place))]]
        place.engine.troubles.append(DatabaseUnavailable("The database is away.", "wait"))
        await place.discord.command(place.priya, "mcp sync", place.channel, {"server": "notes"})
        answer = await place.reads(UNEXPECTED_ERROR)
        assert answer.ephemeral


async def test_an_outdated_command_is_answered_with_a_fix() -> None:
    async with command_bot() as place:
        listed = next(each for each in place.discord.app.commands[""] if each["name"] == "mcp")
        next(each for each in listed["options"] if each["name"] == "list")["name"] = "lists"
        await place.discord.command(place.priya, "mcp lists", place.channel)
        await place.reads(CHANGED)
        assert place.commands.requests == []


async def test_a_dismissed_answer_is_not_sent_again() -> None:
    async with command_bot([Reply("Checking…"), Reply("All is well.")]) as place:
        place.commands.going_on.clear()
        typed = await place.discord.command(place.priya, "mcp verify", place.channel, {"server": "notes"})
        await place.reads("Checking…")
        place.discord.reload(place.priya)
        place.commands.going_on.set()
        await place.discord.until(lambda: place.discord.calls.of(EDIT))
        await place.discord.command(place.priya, "mcp list", place.channel)
        await place.reads("Done.")
        assert place.visible_messages(channel=place.discord.dm(place.priya)) == []
        assert typed.messages == []


async def test_an_answer_that_discord_loses_is_tried_again() -> None:
    async with command_bot([Reply("Here.")]) as place:
        place.discord.fail(CALLBACK, Answers(502))
        await place.discord.command(place.priya, "mcp list", place.channel)
        await place.reads("Here.")


async def test_members_in_screening_command_nothing() -> None:
    async with command_bot() as place:
        novice = place.discord.user("Nora", pending=True)
        await place.discord.command(novice, "mcp list", place.channel)
        answer = await place.reads(NOT_FOR_STRANGERS, novice)
        assert answer.ephemeral
        assert place.commands.requests == []


async def test_a_server_that_is_not_served_is_told_so() -> None:
    async with command_bot(servers=frozenset({"1"})) as place:
        await place.discord.command(place.priya, "mcp list", place.channel)
        await place.reads(NOT_SERVED)
        assert place.commands.requests == []


async def test_nothing_of_an_answer_calls_or_draws() -> None:
    rows = (("notes", "@everyone ```\n# big"), ("web", f"<@{1}> **x**"))
    reply = Reply(
        "Two.", Table(("name", "about"), rows), details=(("cause", "@here `x` <@&5>\n**fix:** run it"), ("fix", "wait"))
    )
    async with command_bot([reply]) as place:
        await place.discord.command(place.priya, "mcp list", place.channel)
        answer = await place.reads("Two.")
        (message,) = place.discord.bot_messages(place.channel)
        assert place.discord.notified_ids(message) == set()
        assert "\\*\\*fix:\\*\\*" in answer.words
        assert answer.words.count("**fix:**") == 1
        assert answer.words.count("```") == 2


async def test_a_reply_names_people_and_roles_as_text() -> None:
    async with command_bot() as place:
        role = place.discord.role("ops*", place.sam)
        who = f"discord:{place.sam.id}, discord-role:{role.id}"
        place.commands.answers = [[Reply(f"Only {who} can do this: `--approvers {who}`.", failed=True)]]
        await place.discord.command(place.sam, "mcp list", place.channel)
        answer = await place.reads("can do this", place.sam)
        assert answer.words.startswith("⚠ Only @Sam, @ops\\* can do this: `--approvers discord:")


# Buttons


async def test_buttons_below_an_answer_say_the_next_command_in_its_place() -> None:
    first = Reply("Page one.", actions=(ReplyAction("Sync", ("mcp", "sync")),), page=PageInfo(1, 2, ("mcp", "list")))
    async with command_bot([first], [Reply("Page two.")]) as place:
        await place.discord.command(place.priya, "mcp list", place.channel)
        await place.reads("Page 1 of 2")
        pressed = await place.presses("More ▶")
        assert pressed.answered is Answer.UPDATE
        await place.reads("Page two.")
        assert place.last_invocation.words == ("list", "--page", "2")
        assert len(place.visible_messages()) == 1


async def test_a_slow_press_keeps_the_answer_it_stands_in_until_the_next_one_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.platforms.discord.interactions.PATIENCE_SECONDS", 0.2)
    first = Reply("Look?", actions=(ReplyAction("Verify", ("mcp", "verify", "notes")),))
    async with command_bot([first], [Reply("All is well.")]) as place:
        await place.discord.command(place.priya, "mcp show", place.channel, {"server": "notes"})
        await place.reads("Look?")
        place.commands.begun.clear()
        pressed = await place.presses("Verify")
        assert pressed.answered is Answer.DEFERRED_UPDATE
        assert [(each.words.splitlines()[0], each.thinking) for each in place.visible_messages()] == [("Look?", False)]
        place.commands.begun.set()
        await place.reads("All is well.")
        assert len(place.visible_messages()) == 1


async def test_a_refusal_stands_beside_the_answer_and_not_in_its_place() -> None:
    first = Reply("Look?", actions=(ReplyAction("Verify", ("mcp", "verify", "notes")),))
    async with command_bot([first]) as place:
        await place.discord.command(place.sam, "mcp list", place.channel)
        await place.reads("Look?", place.sam)
        place.discord.guild.members[place.sam.id].pending = True
        await place.presses("Verify", place.sam)
        await place.reads(NOT_FOR_STRANGERS, place.sam)
        await place.reads("Look?", place.sam)
        assert len(place.commands.requests) == 1


async def test_two_buttons_that_say_the_same_are_both_there() -> None:
    twice = Reply("Twice.", actions=(ReplyAction("One", ("mcp", "list")), ReplyAction("Two", ("mcp", "list"))))
    async with command_bot([twice], [Reply("Here.")]) as place:
        await place.discord.command(place.priya, "mcp list", place.channel)
        answer = await place.reads("Twice.")
        assert answer.buttons == ["One", "Two"]
        await place.presses("Two")
        await place.reads("Here.")
        assert place.last_invocation.words == ("list",)


async def test_an_action_too_long_for_a_button_is_remembered_for_a_while() -> None:
    words = ("profile", "bind", "the one with blanks " * 8)
    async with command_bot([Reply("Bind?", actions=(ReplyAction("Bind here", words),))], [Reply("It holds.")]) as place:
        await place.discord.command(place.priya, "profile list", place.channel)
        await place.reads("Bind?")
        await place.presses("Bind here")
        await place.reads("It holds.")
        assert (place.last_invocation.command, *place.last_invocation.words) == words


# Commands in mentions


async def test_a_command_said_in_a_channel_is_answered_by_a_direct_message() -> None:
    async with command_bot(
        [Reply("Two servers.", actions=(ReplyAction("Sync", ("mcp", "sync")),))], [Reply("Done so.")]
    ) as place:
        asked = place.discord.say(place.priya, place.channel, f"{place.discord.bot.mention} mcp list")
        dm = place.discord.dm(place.priya)
        await place.reads("Two servers.", channel=dm)
        note = await place.reads(SENT_DIRECTLY, place.sam)
        assert note.reply_to == asked.id
        assert "Two servers" not in str(place.visible_messages(place.sam))
        await place.presses("Sync", channel=dm)
        await place.reads("Done so.", channel=dm)
        assert place.last_invocation.conversation == place.key()
        assert place.engine.received == []


async def test_in_a_direct_conversation_the_answer_is_a_message_that_is_edited() -> None:
    async with command_bot([Reply("Checking…"), Reply("All is well.")]) as place:
        dm = place.discord.dm(place.priya)
        place.discord.say(place.priya, dm, "mcp verify notes")
        await place.reads("All is well.", channel=dm)
        assert len(place.visible_messages(channel=dm)) == 1
        assert place.last_invocation.conversation.workspace == place.discord.guild.id


async def test_a_user_without_direct_messages_reads_that_there_is_an_answer() -> None:
    async with command_bot([Reply("The secret plan.")]) as place:
        place.sam.takes_dms = False
        asked = place.discord.say(place.sam, place.channel, f"{place.discord.bot.mention} mcp list")
        note = await place.reads(NOT_SENT.split(".", maxsplit=1)[0], place.priya)
        assert note.reply_to == asked.id
        assert "secret plan" not in str(place.visible_messages(place.priya))


# Files and turns in replies


async def test_a_call_by_hand_in_a_channel_begins_a_thread() -> None:
    async with command_bot() as place:
        message = by_hand(place)
        place.commands.answers = [[Reply("Running notes.add…", message=message, private=False)]]
        await place.discord.command(place.priya, "mcp run", place.channel, {"server": "notes", "tool": "add"})
        await place.discord.until(lambda: place.engine.received)
        (thread,) = place.discord.threads(place.channel)
        assert place.engine.received[0].conversation == place.key(thread.id)
        anchor = await place.reads("priya: Run notes.add", place.sam)
        assert anchor.thread == thread.id
        await place.reads("Running notes.add…")


async def test_a_document_is_handed_over_with_the_answer() -> None:
    document = ReplyFile("servers.json", "{}", "application/json")
    async with command_bot([Reply("Here they are.", document=document)]) as place:
        await place.discord.command(place.priya, "conversations export", place.channel)
        await place.reads("Here they are.")
        await place.discord.until(lambda: any("servers.json" in each.files for each in place.visible_messages()))
        assert all(each.ephemeral for each in place.visible_messages())


async def test_a_file_that_discord_does_not_take_is_named_and_the_answer_stays() -> None:
    async with command_bot([Reply("Here they are.", document=ReplyFile("all.md", "x" * 11_000_000))]) as place:
        await place.discord.command(place.priya, "conversations export", place.channel)
        await place.reads("Here they are.")
        note = await place.reads("The file all.md could not be shared")
        assert note.ephemeral


# Autocomplete


async def test_servers_and_their_tools_are_offered_while_they_are_typed() -> None:
    async with command_bot() as place:
        servers = await place.discord.suggest(place.priya, "mcp show", place.channel, "server", "SEARCH")
        assert [server["value"] for server in servers] == ["web-search"]
        tools = await place.discord.suggest(
            place.priya, "mcp policy set", place.channel, "tool", others={"server": "notes"}
        )
        assert [tool["value"] for tool in tools] == ["list", "add", "delete"]
        nothing = await place.discord.suggest(place.priya, "mcp policy set", place.channel, "tool", "a")
        assert nothing == []
        last = await place.discord.suggest(place.priya, "profile set", place.channel, "server", "notes we")
        assert [each["value"] for each in last] == ["notes web-search"]


async def test_strangers_are_offered_nothing() -> None:
    async with command_bot() as place:
        novice = place.discord.user("Nora", pending=True)
        assert await place.discord.suggest(novice, "mcp show", place.channel, "server") == []


def by_hand(place: CommandBot) -> InboundMessage:
    return InboundMessage(("hand:1",), place.key(), Author("discord", place.priya.id, "priya"), "Run notes.add")
