"""Dependencies of all Discord event handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import discord

from bot.chat.context import ChatContext, Lookups
from bot.domain.conversations import ConversationKey, Member
from bot.platforms.discord.channels import ChannelRef, conversation
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory


@dataclass(frozen=True, slots=True)
class DiscordLookups(Lookups):
    """Lookups outside the engine. `engaged` returns conversations by key prefix with activity in the last seconds,
    latest first, up to a limit; it may be missing.
    """

    engaged: Callable[[str, float, int], Awaitable[Sequence[ConversationKey]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext(ChatContext):
    """Discord on one side, the engine and the commands on the other."""

    records: DiscordLookups
    rest: Rest
    people: UserDirectory

    async def member(self, user: discord.Member | discord.User, guild: str) -> Member:
        """Return the user of an event; looked up if the event has no rights. Raises DeliveryFailed."""
        if isinstance(user, discord.Member) or not guild:
            return self.people.from_interaction(user)
        return await self.people.member(str(user.id), guild)

    async def cached_member(self, user: discord.Member | discord.User, guild: str) -> Member:
        """Return the user with rights up to five minutes old: for replies, not for decisions. Raises DeliveryFailed."""
        if isinstance(user, discord.Member) or not guild:
            return self.people.from_interaction(user)
        return (await self.people.person(str(user.id), guild)).member

    async def conversation_in(self, channel: ChannelRef, user: str) -> ConversationKey:
        """Return the conversation in a channel. A direct one belongs to the user's guild, empty for an unknown user.
        Raises DeliveryFailed.
        """
        guild = channel.server or await self.people.home_of(user)
        return conversation(guild, channel.channel, channel.thread)
