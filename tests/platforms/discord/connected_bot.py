"""A Discord guild with the bot: the fake Discord, the real discord.py, and a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import pytest

from bot.chat.context import Lookups
from bot.chat.listener_leases import LEASE_SECONDS
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.domain.turns import TurnView
from bot.platforms.discord import gateway
from bot.platforms.discord.app import DiscordSurface
from bot.platforms.discord.listener import DiscordListener
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from bot.ports import Quota, QuotaExceeded, QuotaGranted
from tests.fakes.discord import Channel, FakeDiscord, Message, User
from tests.platforms.fake_engine import FakeEngine, ScriptedCommands, SharedLeases


class SharedQuotas:
    """Rate limits that several processes share, by the event loop's clock."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        self.starts: list[float] = []
        """Start time of each granted unit."""

    async def acquire(self, name: str, quota: Quota, _most_wait: float) -> QuotaGranted | QuotaExceeded:
        now = asyncio.get_running_loop().time()
        start = max(now, self.due.get(name, now))
        self.due[name] = start + quota.interval
        self.starts.append(start)
        return QuotaGranted(start - now, 0)

    async def pause(self, name: str, _quota: Quota, seconds: float) -> None:
        self.due[name] = asyncio.get_running_loop().time() + seconds

    async def forget_idle(self, _limit: int) -> int:
        return 0


@dataclass
class ConnectedBot:
    """The fake, the connected bot and its parts."""

    discord: FakeDiscord
    rest: Rest
    people: UserDirectory
    engine: FakeEngine
    commands: ScriptedCommands
    surface: DiscordSurface
    priya: User
    channel: Channel
    leases: SharedLeases
    quotas: SharedQuotas = field(default_factory=SharedQuotas)
    audience: AudiencePolicy | None = None
    engaged: list[ConversationKey] = field(default_factory=list)
    """Conversations of the bot according to the database."""
    records: Lookups = Lookups()
    lease_seconds: float = LEASE_SECONDS
    """Seconds of the gateway lease. A slow machine loses a short lease."""
    listening: asyncio.Task[None] | None = None
    refs: dict[str, dict[str, str]] = field(default_factory=dict)

    async def draw(self, view: TurnView) -> dict[str, str]:
        """Deliver a view as the engine does, and keep its message refs."""
        refs = self.refs.setdefault(view.turn.id, {})
        async for drawn in self.surface.deliver(view, refs):
            refs[drawn.slot] = drawn.ref
        return refs

    def key(self, channel: Channel, thread: str = "") -> ConversationKey:
        """Return the key of a channel in the guild or of a thread in it."""
        return ConversationKey("discord", self.discord.guild.id, channel.id, thread)

    async def wait_for_messages(self, count: int) -> None:
        """Wait until the engine has received `count` messages."""
        await self.discord.until(lambda: len(self.engine.received) >= count)

    async def quiet(self, channel: Channel | None = None) -> None:
        """Wait until the engine has received the earlier messages of a channel or thread: they arrive in order."""
        self.discord.say(self.priya, channel or self.channel, f"{self.discord.bot.mention} {LAST}")
        await self.discord.until(lambda: any(each.text == LAST for each in self.engine.received))
        self.engine.received[:] = [each for each in self.engine.received if each.text != LAST]

    def serve(self, servers: frozenset[str]) -> None:
        """Serve only these guilds, from the next listener on."""
        self.people = UserDirectory(self.rest, servers)

    @property
    def texts(self) -> list[str]:
        """Texts of the received messages, oldest first."""
        return [each.text for each in self.engine.received]

    def public_messages(self, channel: Channel | None = None) -> list[Message]:
        """Return the bot's public messages."""
        return [message for message in self.discord.bot_messages(channel or self.channel) if not message.ephemeral_to]

    def whispers(self, user: User, channel: Channel | None = None) -> list[str]:
        """Return the ephemeral messages to this user."""
        return [
            message.content
            for message in self.discord.bot_messages(channel or self.channel)
            if message.ephemeral_to == user.id
        ]

    def listener(self, holder: str = "one") -> DiscordListener:
        """Return the listener of a process with this name."""
        return DiscordListener(
            self.rest,
            self.people,
            self.leases,
            holder,
            audience=self.audience,
            records=replace(self.records, active_conversations=self._active_keys),
            quotas=self.quotas,
            lease_seconds=self.lease_seconds,
            clock=self.discord.clock.now,
        )

    async def _active_keys(self, reach: str, _seconds: float, limit: int) -> list[ConversationKey]:
        return [key for key in self.engaged if str(key).startswith(reach)][:limit]

    @asynccontextmanager
    async def running(self, holder: str = "one") -> AsyncIterator[asyncio.Task[None]]:
        """Run the listener inside the block, with the gateway lease."""
        count = self.discord.gateway.identify_count
        self.listening = asyncio.create_task(self.listener(holder).run(self.engine, self.commands))
        try:
            await self._wait_for_connection(self.listening, count + 1)
            yield self.listening
        finally:
            if not self.listening.done():
                await cancel_task(self.listening)

    async def stop(self) -> None:
        """Stop listening."""
        if self.listening is not None:
            await cancel_task(self.listening)
            await self.discord.gateway.wait_for_disconnect()

    async def _wait_for_connection(self, listening: asyncio.Task[None], sessions: int) -> None:
        """Wait until the listener is connected. Raises the listener's error."""
        while self.discord.gateway.identify_count < sessions or not self.discord.gateway.live:
            await asyncio.wait({listening}, timeout=0.02)
            if listening.done():
                listening.result()


LAST = "and that is all"


@asynccontextmanager
async def connected_bot(
    *,
    listening: bool = True,
    audience: AudiencePolicy | None = None,
    answers: Sequence[Sequence[object]] = (),
    records: Lookups | None = None,
    message_content: bool = True,
    user_install: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncIterator[ConnectedBot]:
    """A guild with Priya in #incidents. The listener holds the gateway lease."""
    async with AsyncExitStack() as stack:
        # The fake describes all guilds immediately, so a short wait suffices.
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(gateway, "GUILDS_SECONDS", 0.3)
        discord = await stack.enter_async_context(FakeDiscord(message_content=message_content))
        discord.pace.strict = False
        discord.app.user_install = user_install
        priya, channel = discord.user("Priya"), discord.channel("incidents")
        rest = await stack.enter_async_context(Rest(discord.token, url=discord.url))
        people = UserDirectory(rest)
        engine, commands, leases = FakeEngine(), ScriptedCommands(*answers), SharedLeases()  # type: ignore[arg-type]
        engine.clock = discord.clock.now
        surface = DiscordSurface(rest, people)
        place = ConnectedBot(
            discord,
            rest,
            people,
            engine,
            commands,
            surface,
            priya,
            channel,
            leases,
            audience=audience,
            records=records or Lookups(),
            lease_seconds=lease_seconds,
        )
        if listening:
            await stack.enter_async_context(place.running())
        yield place


async def cancel_task(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
