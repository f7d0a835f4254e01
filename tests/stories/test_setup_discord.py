"""`countersign setup discord`: a person at a terminal, who creates the application and invites the bot."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.discord import Channel, FakeDiscord, Permission, User
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.setup_program import SetupFolder, answers, expect_refusal

WHAT_IT_NEEDS = (
    Permission.VIEW_CHANNEL
    | Permission.SEND_MESSAGES
    | Permission.SEND_MESSAGES_IN_THREADS
    | Permission.CREATE_PUBLIC_THREADS
    | Permission.READ_MESSAGE_HISTORY
    | Permission.ATTACH_FILES
    | Permission.EMBED_LINKS
)


class Server:
    """The server, which the bot is not in yet, and the folder of the setup."""

    def __init__(self, discord: FakeDiscord, folder: Path) -> None:
        self.discord = discord
        discord.expel(discord.guild)
        self.ana: User = discord.user("Ana")
        discord.app.owner = self.ana
        self.incidents: Channel = discord.channel("incidents")
        self.setup = SetupFolder(folder, DISCORD_API_URL=discord.url)

    def invite(self) -> None:
        self.discord.invite(self.discord.guild, WHAT_IT_NEEDS)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with FakeDiscord(message_content=False) as discord:
        discord.pace.strict = False
        yield Server(discord, tmp_path)


async def creates_the_application(terminal: ProgramOnTerminal) -> None:
    await terminal.shows("https://discord.com/developers/applications?new_application=true")
    await answers(terminal, "Press Enter when it is created")


async def test_a_person_sets_up_discord(server: Server) -> None:
    discord = server.discord
    async with server.setup.at_terminal("discord") as terminal:
        await creates_the_application(terminal)
        await answers(terminal, "Bot token", discord.token)
        await answers(terminal, "is that the right one?")
        await terminal.shows(f"https://discord.com/developers/applications/{discord.app.id}/bot", "What now?")
        await discord.go_down()
        await answers(terminal, "What now?")
        await terminal.shows("Discord does not answer", "Press Enter to try again")
        await discord.come_back()
        discord.app.message_content = True
        await answers(terminal, "Press Enter to try again")
        await terminal.shows("It is on:", f"client_id={discord.app.id}", "Waiting for it")
        server.invite()
        await answers(terminal, "Answer in Acme only")
        await answers(terminal, "Who administers?")
        await answers(terminal, "Who else may approve calls?")
        await answers(terminal, "In which channel should it introduce itself?")
        await answers(terminal, "introduce itself in #incidents?")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
    assert server.setup.values == {
        "DISCORD_TOKEN": discord.token,
        "DISCORD_SERVERS": discord.guild.id,
        "ADMINS": f"discord:{server.ana.id}",
    }
    assert server.setup.mode == 0o600
    assert discord.token.encode() not in terminal.raw
    (message,) = discord.bot_messages(server.incidents)
    assert "what can you do?" in str(message.to_json())

    # A second time everything is ticked, nothing is asked, nothing is posted, and the bot starts.
    async with server.setup.at_terminal("discord") as terminal:
        await answers(terminal, "Start the bot now?", "y", last=True)
        await discord.gateway.wait_for_connections()
        shown = terminal.text
        for step in range(1, 8):
            assert f"[{step}/7]" in shown
        assert "(hidden)" not in shown
        terminal.signal(signal.SIGINT)
        assert await terminal.wait_for_exit() == 0
    assert len(discord.bot_messages(server.incidents)) == 1
    assert discord.app.commands[""]  # the start registers them


async def test_every_wrong_token_is_told_with_its_fix_and_asked_for_again(server: Server) -> None:
    discord, ask, reset = server.discord, "Bot token", "press Reset Token"
    server.setup.note("discord", created="yes")
    async with server.setup.at_terminal("discord") as terminal:
        await expect_refusal(terminal, ask, "", "Nothing was entered.", reset)
        await expect_refusal(terminal, ask, discord.app.id, "That is an id, not a token.", reset)
        await expect_refusal(terminal, ask, "ab" * 32, "That is the Public Key", reset)
        await expect_refusal(terminal, ask, "aB3_" * 8, "That is the Client Secret", reset)
        await expect_refusal(terminal, ask, f"Bot {discord.token}", "does not belong to it", "copy the token alone")
        await expect_refusal(terminal, ask, "xoxb-1-2-3", "three parts with dots", reset)
        await expect_refusal(terminal, ask, "MTIz.abcdef.ghijkl", "Discord does not know the token.", reset)
        assert not server.setup.env.exists()
        await answers(terminal, ask, discord.token)
        await answers(terminal, "is that the right one?", "n")
        await terminal.shows("The token is of another application.")
        await answers(terminal, ask, discord.token)
        await answers(terminal, "is that the right one?")
        await terminal.shows("What now?")
        terminal.press("\x03")
        assert await terminal.wait_for_exit() == 130
        assert "`countersign setup discord` continues from there" in terminal.text
        assert discord.token.encode() not in terminal.raw
    # It goes on with the switch, which may stay off; and with an address that takes the clicks away.
    discord.app.endpoint = "https://elsewhere.example/interactions"
    async with server.setup.at_terminal("discord", "--wait", "1") as terminal:
        await terminal.shows("✓ countersign, application", "clear Interactions Endpoint URL", "What now?")
        discord.app.endpoint = None
        await answers(terminal, "What now?")
        await terminal.shows("Go on without it")
        await answers(terminal, "What now?", "2")
        await terminal.shows("It stays off", "The bot was not invited to a server yet.")
        discord.guild.everyone.permissions &= ~Permission.CREATE_PUBLIC_THREADS
        discord.invite(discord.guild)
        await answers(terminal, "Press Enter to look again")
        await terminal.shows("In Acme the bot lacks", "Create Public Threads")
        discord.bot_role.permissions = WHAT_IT_NEEDS
        await answers(terminal, "What now?")
        await answers(terminal, "Answer in Acme only", "n")
        await answers(terminal, "Who administers?", "2")
        await expect_refusal(terminal, "Name or id of the member", "nobody", "Nobody called 'nobody'", "write the id")
        await answers(terminal, "Who administers?", "2")
        await answers(terminal, "Name or id of the member", "ana")
        await answers(terminal, "Who else may approve calls?", server.ana.id)
        await answers(terminal, "In which channel should it introduce itself?")
        await answers(terminal, "introduce itself in #incidents?", "n")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.wait_for_exit() == 0
    assert server.setup.values == {
        "DISCORD_TOKEN": discord.token,
        "ADMINS": f"discord:{server.ana.id}",
        "APPROVERS": f"discord:{server.ana.id}",
    }
    assert discord.bot_messages(server.incidents) == []


async def test_without_a_terminal_every_step_is_printed_or_done(server: Server) -> None:
    discord, setup = server.discord, server.setup
    outcome = await setup.prints("discord")
    assert (outcome.code, "countersign setup discord --print" in outcome.err) == (2, True)
    outcome = await setup.prints("discord", "--print")
    assert outcome.code == 4, outcome.err
    assert "https://discord.com/developers/applications?new_application=true" in outcome.out
    assert "DISCORD_TOKEN=…" in outcome.out
    typed = f"DISCORD_TOKEN={discord.token}\n"
    outcome = await setup.prints("discord", "--print", "--stdin", typed=typed)
    assert outcome.code == 1, outcome.out  # the doctor needs a server
    assert f"/{discord.app.id}/bot" in outcome.out
    assert f"client_id={discord.app.id}" in outcome.out
    assert not setup.env.exists()
    server.invite()
    discord.app.message_content = True
    words = ("discord", "--print", "--write", "--stdin", "--channel", "#incidents", "--admin", "ana")
    outcome = await setup.prints(*words, typed=typed)
    assert outcome.code == 0, outcome.out
    assert setup.values == {
        "DISCORD_TOKEN": discord.token,
        "DISCORD_SERVERS": discord.guild.id,
        "ADMINS": f"discord:{server.ana.id}",
    }
    assert setup.mode == 0o600
    assert len(discord.bot_messages(server.incidents)) == 1
    outcome = await setup.prints("discord", "--print", "--write", "--json")
    assert outcome.code == 0, outcome.out
    assert {event["status"] for event in outcome.events if "step" in event} == {"done"}
    assert len(discord.bot_messages(server.incidents)) == 1
    assert discord.token not in outcome.out + outcome.err
    setup.env.write_text("DISCORD_TOKEN=MTIz.abcdef.ghijkl\n")
    outcome = await setup.prints("discord", "--print")
    assert outcome.code == 1
    assert "Discord does not know the token." in outcome.out
