"""A Discord guild with a connected bot, and scripted commands behind the real verbs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from bot.chat.users import AudiencePolicy
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, Verb
from bot.domain.conversations import ConversationKey
from bot.platforms.discord.listener import DiscordListener
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from tests.admin.servers import Servers, registry, two_servers
from tests.fakes.discord import Channel, FakeDiscord, Interaction, User, VisibleState
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands

VERBS = registry(Servers()).verbs


class CommandsByScript(ScriptedCommands):
    """Commands with scripted replies. Verbs and completion are the real ones, over two MCP servers with tools."""

    def __init__(self, *answers: Sequence[Reply | Form]) -> None:
        super().__init__(*answers)
        self.registry = registry(two_servers())

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        return VERBS

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        return self.registry.complete(text, conversation)


class Alone:
    """Leases without competing holders."""

    async def acquire_or_renew(self, name: str, holder: str, seconds: float) -> bool:
        return True

    async def find_holders(self, prefix: str) -> dict[str, str]:
        return {}

    async def release(self, name: str, holder: str) -> None:
        return


@dataclass
class CommandBot:
    """The fake, the connected bot and its parts. Priya administers the guild, Sam does not."""

    discord: FakeDiscord
    people: UserDirectory
    engine: FakeEngine
    commands: CommandsByScript
    priya: User
    sam: User
    channel: Channel

    @property
    def last_invocation(self) -> Invocation:
        """The last invoked command."""
        request = self.commands.requests[-1]
        assert isinstance(request, Invocation)
        return request

    @property
    def last_submission(self) -> FormSubmission:
        """The last submitted form."""
        request = self.commands.requests[-1]
        assert isinstance(request, FormSubmission)
        return request

    def key(self, thread: str = "") -> ConversationKey:
        """Return the key of #incidents or of a thread in it."""
        return ConversationKey("discord", self.discord.guild.id, self.channel.id, thread)

    def visible_messages(self, user: User | None = None, channel: Channel | None = None) -> list[VisibleState]:
        """Return the bot's messages that a user sees; Priya by default."""
        found = self.discord.what_user_sees(user or self.priya, channel or self.channel)
        return [each for each in found if each.user == self.discord.bot.id]

    async def reads(self, text: str, user: User | None = None, channel: Channel | None = None) -> VisibleState:
        """Wait until a user sees a message with this text, and return it."""

        def matching_messages() -> list[VisibleState]:
            return [each for each in self.visible_messages(user, channel) if text in each.words]

        await self.discord.until(matching_messages)
        return matching_messages()[-1]

    async def presses(self, label: str, user: User | None = None, channel: Channel | None = None) -> Interaction:
        """Press a button of the bot's latest message that has it."""
        posted = self.discord.bot_messages(channel or self.channel)
        message = next(each for each in reversed(posted) if f"'{label}'" in str(each.components))
        return await self.discord.press(user or self.priya, message, label)


@asynccontextmanager
async def command_bot(
    *answers: Sequence[Reply | Form],
    audience: AudiencePolicy | None = None,
    servers: frozenset[str] = frozenset(),
    user_install: bool = False,
) -> AsyncIterator[CommandBot]:
    """A guild with Priya and Sam in #incidents. The listener is connected and its commands are registered."""
    async with AsyncExitStack() as stack:
        discord = await stack.enter_async_context(FakeDiscord())
        discord.pace.strict = False
        discord.app.user_install = user_install
        priya, sam = discord.user("Priya", admin=True), discord.user("Sam")
        channel = discord.channel("incidents")
        rest = await stack.enter_async_context(Rest(discord.token, url=discord.url))
        people = UserDirectory(rest, servers)
        engine, scripted = FakeEngine(), CommandsByScript(*answers)
        listener = DiscordListener(rest, people, Alone(), "one", audience=audience)
        listening = asyncio.create_task(listener.run(engine, scripted))
        stack.push_async_callback(_cancel_task, listening)
        await discord.until(lambda: listening.done() or discord.app.commands.get(""))
        if listening.done():
            listening.result()
        await discord.gateway.wait_for_connections()
        yield CommandBot(discord, people, engine, scripted, priya, sam, channel)


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
