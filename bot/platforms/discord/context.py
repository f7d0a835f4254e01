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

    async def home_guild(self, spot: ChannelRef, user: str) -> str:
        """Return the guild of a conversation. For a direct one return the user's guild, empty for an unknown user.
        Raises DeliveryFailed.
        """
        return spot.server or await self.people.home_of(user)

    async def member(self, who: discord.Member | discord.User, server: str) -> Member:
        """Return the user of an event; looked up if the event has no rights. Raises DeliveryFailed."""
        if isinstance(who, discord.Member) or not server:
            return self.people.from_interaction(who)
        return await self.people.member(str(who.id), server)

    async def cached_member(self, member: discord.Member | discord.User, server: str) -> Member:
        """Return the user with rights up to five minutes old: for replies, not for decisions. Raises DeliveryFailed."""
        if isinstance(member, discord.Member) or not server:
            return self.people.from_interaction(member)
        return (await self.people.person(str(member.id), server)).member

    async def where(self, spot: ChannelRef, user: str) -> ConversationKey:
        """Return the conversation in a channel. Raises DeliveryFailed."""
        return conversation(await self.home_guild(spot, user), spot.channel, spot.thread)
