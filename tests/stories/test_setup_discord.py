"""`countersign setup discord`: a person at a terminal, who creates the application and invites the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.discord import Channel, FakeDiscord, Permission, User
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.setup_program import SetupFolder, answers

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
        discord.app.message_content = True
        await answers(terminal, "What now?")
        await terminal.shows("It is on:", f"client_id={discord.app.id}", "Waiting for it")
        server.invite()
        await answers(terminal, "Answer in Acme only")
        await answers(terminal, "Who administers?")
        await answers(terminal, "Who else may approve calls?")
        await answers(terminal, "In which channel shall it introduce itself?")
        await answers(terminal, "introduce itself in #incidents?")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.ended() == 0
    assert server.setup.values == {
        "DISCORD_TOKEN": discord.token,
        "DISCORD_SERVERS": discord.guild.id,
        "ADMINS": f"discord:{server.ana.id}",
    }
    assert server.setup.mode == 0o600
    assert discord.token.encode() not in terminal.raw
    (message,) = discord.posted(server.incidents)
    assert "what can you do?" in str(message.described())
