"""A company whose bot is the real program: `countersign run` as a process, in a folder as an operator has it.

Discord is the fake one over sockets, the model a fake service over HTTP; servers are real processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.discord import Channel, FakeDiscord, Message, User, VisibleState
from tests.fakes.discord.components import BUTTON, walk
from tests.fakes.llm import FakeLanguageModel
from tests.stories.installation import Installation
from tests.stories.program import PATIENCE, Bot, a_bot


@dataclass(kw_only=True)
class Company:
    """Priya asks, Sam administers, #incidents is where they are; and the folder the bot runs in."""

    discord: FakeDiscord
    priya: User
    sam: User
    incidents: Channel
    place: Installation

    @asynccontextmanager
    async def bot(self, **environment: str) -> AsyncIterator[Bot]:
        """The program from its start to its end; it holds the gateway and its commands are registered by then."""
        before = self.discord.gateway.identify_count
        async with a_bot(self.place, **environment) as bot:
            await self.discord.until(lambda: self.discord.gateway.identify_count > before, PATIENCE)
            await self.discord.until(lambda: self.discord.app.commands.get(""), PATIENCE)
            yield bot

    def ask(self, text: str, user: User | None = None) -> Message:
        """Let Priya, or another user, mention the bot in #incidents."""
        return self.discord.say(user or self.priya, self.incidents, f"{self.discord.bot.mention} {text}")

    async def thread(self, question: Message) -> Channel:
        """Wait until the bot has opened a thread at a question."""
        await self.discord.until(lambda: question.thread, PATIENCE)
        assert question.thread is not None
        return question.thread

    def words(self, place: Channel, user: User | None = None) -> list[str]:
        """The bot's messages in a channel or thread, as a user reads them, buttons included."""
        return [each.words for each in self._visible_messages(place, user)]

    async def reads(self, place: Channel, *texts: str, user: User | None = None) -> Message:
        """Wait, as long as a busy machine takes, until one message of the bot has all these texts, and return it."""

        def matching_ids() -> list[str]:
            return [
                each.id for each in self._visible_messages(place, user) if all(text in each.words for text in texts)
            ]

        try:
            await self.discord.until(matching_ids, PATIENCE)
        except TimeoutError:
            raise AssertionError(f"nobody reads {texts} among {self.words(place, user)}") from None
        return next(message for message in self.discord.bot_messages(place) if message.id == matching_ids()[-1])

    async def press(self, user: User, message: Message, label: str) -> None:
        """Press the button whose label begins with this text."""
        await self.discord.press(
            user, message, next(button for button in self.buttons(message) if button.startswith(label))
        )

    def buttons(self, message: Message) -> list[str]:
        """The labels of a message's buttons."""
        return [node.get("label", "") for node in walk(message.components) if node["type"] == BUTTON]

    def _visible_messages(self, place: Channel, user: User | None) -> list[VisibleState]:
        mine = {message.id for message in self.discord.bot_messages(place)}
        return [each for each in self.discord.what_user_sees(user or self.priya, place) if each.id in mine]


@asynccontextmanager
async def a_company(
    folder: Path, model: FakeLanguageModel, servers: Mapping[str, Any] | None = None, **environment: str
) -> AsyncIterator[Company]:
    """Open the company without a running bot. Sam administers. `servers` is that of an Installation."""
    async with FakeDiscord() as discord:
        discord.pace.strict = False  # stories say more in a second than people do
        priya, sam = discord.user("Priya"), discord.user("Sam", admin=True)
        known = {
            "DISCORD_TOKEN": discord.token,
            "DISCORD_API_URL": discord.url,
            "ADMINS": f"discord:{sam.id}",
            "LOG_FORMAT": "text",
        }
        place = Installation(folder, servers, model=model, **{**known, **environment})
        yield Company(discord=discord, priya=priya, sam=sam, incidents=discord.channel("incidents"), place=place)
