"""Dependencies of all Discord event handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import discord

from bot.chat.context import ChatContext, Lookups
from bot.domain.conversations import ConversationKey, Member
from bot.platforms.discord.channels import ChannelRef, conversation, direct_channel
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
        """Return the user of an event with the rights in a guild; looked up if the event is from elsewhere. Raises
        DeliveryFailed.
        """
        return self._known_member(user, guild) or await self.people.member(str(user.id), guild)

    async def cached_member(self, user: discord.Member | discord.User, guild: str) -> Member:
        """Return the user with rights up to five minutes old: for replies, not for decisions. Raises DeliveryFailed."""
        return self._known_member(user, guild) or await self.people.cached_member(str(user.id), guild)

    async def conversation_in(self, channel: ChannelRef, user: str) -> ConversationKey:
        """Return the conversation in a channel. A direct one belongs to the user's guild, empty for an unknown user.
        Raises DeliveryFailed.
        """
        guild = channel.server or await self.people.home_of(user)
        return conversation(guild, channel.channel, channel.thread)

    async def direct_conversation(self, user: str) -> ConversationKey:
        """Return the direct conversation of the bot with a user. One of an unknown user has neither guild nor channel.
        Raises DeliveryFailed.
        """
        guild = await self.people.home_of(user)
        return conversation(guild, await direct_channel(self.rest, user) if guild else "")

    def _known_member(self, user: discord.Member | discord.User, guild: str) -> Member | None:
        """Return the user if the event tells the rights in that guild, or if there is none."""
        if not guild:
            return self.people.stranger(user)
        # A member of another guild has other rights there, which count for nothing here.
        if isinstance(user, discord.Member) and str(user.guild.id) == guild:
            return self.people.from_interaction(user)
        return None
