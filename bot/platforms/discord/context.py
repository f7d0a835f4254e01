"""What everything that receives works with, for as long as it receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import discord

from bot.chat.actions import Edit, RunCommand, RunCommandInNewReply
from bot.chat.audience import AudiencePolicy
from bot.chat.background_tasks import BackgroundTasks
from bot.chat.lookups import Lookups
from bot.domain.conversations import ConversationKey, Member
from bot.platforms.discord.action_codec import ResumePending
from bot.platforms.discord.channel_ref import ChannelRef
from bot.platforms.discord.ids import conversation
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory
from bot.ports import Commands, EngineApi


@dataclass(frozen=True, slots=True)
class DiscordLookups(Lookups):
    """What is kept for Discord beside. `engaged` names the conversations whose key begins with a text and in which
    something happened in the last so many seconds, the latest first, so many at most; it may be missing.
    """

    engaged: Callable[[str, float, int], Awaitable[Sequence[ConversationKey]]] | None = None


@dataclass(frozen=True, slots=True)
class PlatformContext:
    """Discord on one side, the engine and the commands on the other."""

    rest: Rest
    people: UserDirectory
    manners: AudiencePolicy
    errands: BackgroundTasks
    engine: EngineApi
    commands: Commands
    records: DiscordLookups = DiscordLookups()

    async def home_guild(self, spot: ChannelRef, user: str) -> str:
        """The server that a conversation belongs to; for a direct one that of the person, empty for a stranger.
        Raises DeliveryFailed.
        """
        return spot.server or await self.people.home_of(user)

    async def member(self, who: discord.Member | discord.User, server: str) -> Member:
        """Somebody as an event brought them along; asked for where it brought no rights. Raises DeliveryFailed."""
        if isinstance(who, discord.Member) or not server:
            return self.people.from_interaction(who)
        return await self.people.member(str(who.id), server)

    async def cached_member(self, who: discord.Member | discord.User, server: str) -> Member:
        """The same as of the last five minutes: to be answered by, never to decide by. Raises DeliveryFailed."""
        if isinstance(who, discord.Member) or not server:
            return self.people.from_interaction(who)
        return (await self.people.person(str(who.id), server)).member

    async def where(self, spot: ChannelRef, user: str) -> ConversationKey:
        """The conversation that goes on in a spot. Raises DeliveryFailed."""
        return conversation(await self.home_guild(spot, user), spot.channel, spot.thread)


@dataclass(frozen=True, slots=True)
class TextCommand:
    """A command that somebody said to the bot (`@bot mcp list`): its words with the name first, who, in which
    conversation, and the message to answer, by the channel or thread it stands in and its id there. `direct` says that
    nobody else is there.
    """

    words: tuple[str, ...]
    member: Member
    conversation: ConversationKey
    place: str
    message: str
    direct: bool = False


class CommandHandler(Protocol):
    """Whoever answers commands that did not come behind a slash."""

    async def said(self, command: TextCommand) -> None:
        """Answer a command that was said in a message. Raises DeliveryFailed."""

    async def failed(self, interaction: discord.Interaction[Any], why: str) -> None:
        """Tell the user of an interaction, answered or not, that nothing comes of it. Raises nothing but
        cancellation.
        """

    async def pressed(
        self, press: RunCommand | RunCommandInNewReply | ResumePending | Edit, interaction: discord.Interaction[Any]
    ) -> None:
        """Answer the press of a button that says a command, opens the form of a call or redeems a ticket, or take back
        the form that a ticket was for; nobody has acknowledged it yet. Raises nothing but cancellation.
        """
