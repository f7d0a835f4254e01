"""Backfill of messages that were missed while no process received.

A resumed session misses nothing; a new one does not include earlier messages (Discord, "Gateway"). The backfill reads:
direct conversations and threads with a turn, from the last turn before the session on; threads that the bot opened
without a turn; mentions elsewhere (`missed_mentions`). Its time, conversations and messages of each are limited.

Processing a message twice has no effect, because a message is one turn.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import discord
from discord.utils import time_snowflake

from bot.domain.conversations import ConversationKey
from bot.errors import CountersignError
from bot.platforms.discord.channels import PLATFORM, ChannelRef, channel_id_of, conversation, from_channel
from bot.platforms.discord.context import PlatformContext
from bot.platforms.discord.messages import MessageHandler, parse_message
from bot.platforms.discord.rest import Rest, map_errors
from bot.platforms.discord.users import UserDirectory

# -------------------- missed mentions
# Searches channels, and threads without a turn, that have messages since the last turn. Channels and messages of
# each are limited.

MOST_PLACES = 50

Place = discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread


async def missed_mentions(
    client: discord.Client, rest: Rest, people: UserDirectory, since: int, known: Container[int]
) -> AsyncGenerator[tuple[discord.Message, ChannelRef, discord.Guild], None]:
    """Yield the messages that mention the bot and are newer than the id `since`, with their channels, except those in
    the channels `known`. Raises DeliveryFailed if the bot's identity cannot be loaded.
    """
    me = (await rest.identity()).user
    reading = await rest.client()
    for place in _lively(client, people, since, known):
        spot = from_channel(place)
        if spot is None:
            continue
        try:
            with map_errors("read what was said meanwhile"):
                history = reading.get_partial_messageable(place.id).history(
                    limit=MOST_MESSAGES, after=discord.Object(since), oldest_first=True
                )
                found = [each async for each in history]
        except CountersignError as error:
            log.info("missed messages of channel %s not loaded: %s", place.id, error)
            continue
        for message in found:
            said = parse_message(message, me, place.guild)
            if said is not None and said.calls_bot and not message.flags.has_thread:
                yield message, spot, place.guild


def _lively(client: discord.Client, people: UserDirectory, since: int, known: Container[int]) -> list[Place]:
    """Return the channels with messages after `since` that the bot may read, the most recent first."""
    places = [
        place
        for guild in client.guilds
        if people.serves(str(guild.id))
        for place in _places(guild)
        if (place.last_message_id or 0) > since and place.id not in known and _readable(place)
    ]
    return sorted(places, key=lambda place: place.last_message_id or 0, reverse=True)[:MOST_PLACES]


def _places(guild: discord.Guild) -> tuple[Place, ...]:
    """Return the channels for messages of users."""
    return (*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads)


def _readable(place: Place) -> bool:
    me: discord.Member | None = place.guild.me
    if me is None or (isinstance(place, discord.Thread) and place.parent is None):
        return False
    may = place.permissions_for(me)
    return may.view_channel and may.read_message_history


log = logging.getLogger(__name__)

HOURS = 24.0
MOST_CONVERSATIONS = 100
MOST_MESSAGES = 100
RECENT_TURNS = 10
LATEST = 5
"""Number of the latest conversations that are ignored for the time of the last message: their newest turns may be from
just now.
"""
CLOCKS_DIFFER = timedelta(seconds=60)
"""Turns carry the database's time, messages Discord's."""
_SPOKEN = (discord.MessageType.default, discord.MessageType.reply)
"""Types of user messages, without the copy of the first message in a thread, whose author opened the thread."""


@dataclass(frozen=True, slots=True)
class _Left:
    """A place to read on in, and from which moment on: the lowest id that a message of that moment can have."""

    spot: ChannelRef
    guild: discord.Guild
    since: int


class Backfill:
    """Reads up."""

    def __init__(self, platform: PlatformContext, reception: MessageHandler) -> None:
        self._platform = platform
        self._reception = reception

    async def read(self, client: discord.Client, began_at: float) -> None:
        """Process the messages before a session that began at `began_at`, in epoch seconds. Raises CountersignError."""
        began = _moment(began_at)
        engaged = await self._engaged()
        for key in engaged:
            try:
                left = await self._left(key, client, began)
                if left is not None:
                    await self._read_on(key, left)
            except CountersignError as error:
                log.warning("missed messages of %s not loaded: %s", key, error)
        for thread in await self._unanswered(client, began, frozenset(engaged)):
            if not await self._has_answered(thread):
                await self._read_beginning(thread)
        known = {int(channel_id_of(key)) for key in engaged}
        since = await self._last_heard(engaged, began)
        async with aclosing(missed_mentions(client, self._platform.rest, self._platform.people, since, known)) as calls:
            async for message, spot, guild in calls:
                await self._reception.handle_late(message, spot, guild)

    async def _engaged(self) -> tuple[ConversationKey, ...]:
        if self._platform.records.engaged is None:
            return ()
        found = await self._platform.records.engaged(f"{PLATFORM}:", HOURS * 3600, MOST_CONVERSATIONS)
        return tuple(key for key in found if self._platform.people.serves(key.workspace))

    async def _left(self, key: ConversationKey, client: discord.Client, began: datetime) -> _Left | None:
        """Return the position to resume at in a conversation, or None if it has no missed messages."""
        guild = client.get_guild(int(key.workspace))
        if guild is None:
            return None  # the bot has left that server
        channel = guild.get_channel_or_thread(int(channel_id_of(key)))
        if key.thread and channel is None:
            return None  # it is asleep, or gone: writing in a thread wakes it up
        # A direct conversation is in no server's list of channels.
        spot = from_channel(channel) or ChannelRef("", key.channel)
        since = await self._last_turn(key, began)
        latest = getattr(channel, "last_message_id", None)
        return None if latest is not None and latest < since else _Left(spot, guild, since)

    async def _last_turn(self, key: ConversationKey, began: datetime) -> int:
        """Return the lowest id of a message after the last turn of a conversation."""
        turns = await self._platform.engine.recent_turns(key, RECENT_TURNS)
        earliest = began - timedelta(hours=HOURS)
        # What comes live from now on is a turn already, perhaps, and says nothing about what came before.
        before = [at for turn in turns if (at := _moment(turn.turn.created_at)) < began]
        return time_snowflake(max(max(before, default=earliest) - CLOCKS_DIFFER, earliest))

    async def _last_heard(self, engaged: Sequence[ConversationKey], began: datetime) -> int:
        """Return the lowest id of a message after the last turn of any conversation, when a process still received."""
        found = [await self._last_turn(key, began) for key in engaged[:LATEST]]
        return max(found, default=time_snowflake(began - timedelta(hours=HOURS)))

    async def _read_on(self, key: ConversationKey, left: _Left) -> None:
        client = await self._platform.rest.client()
        place = client.get_partial_messageable(int(channel_id_of(key)))
        after = discord.Object(left.since)
        with map_errors("read what was said meanwhile"):
            found = [each async for each in place.history(limit=MOST_MESSAGES, after=after, oldest_first=True)]
        for message in found:
            await self._reception.handle_late(message, left.spot, left.guild)

    async def _unanswered(
        self, client: discord.Client, began: datetime, engaged: frozenset[ConversationKey]
    ) -> list[discord.Thread]:
        """Return recent threads that the bot opened without a turn, because its process stopped in between."""
        me, since = (await self._platform.rest.identity()).user, time_snowflake(began - timedelta(hours=HOURS))
        lately = [
            thread
            for guild in client.guilds
            if self._platform.people.serves(str(guild.id))
            for thread in guild.threads
            if str(thread.owner_id) == me and thread.id >= since and _key(thread) not in engaged
        ]
        latest = sorted(lately, key=lambda thread: thread.id, reverse=True)[:MOST_CONVERSATIONS]
        return [thread for thread in latest if not await self._platform.engine.recent_turns(_key(thread), 1)]

    async def _has_answered(self, thread: discord.Thread) -> bool:
        """Return True if the bot has posted in the thread, whose turns were deleted since. Also True if the thread
        cannot be read.
        """
        client, me = await self._platform.rest.client(), (await self._platform.rest.identity()).user
        try:
            with map_errors("read what was said meanwhile"):
                place = client.get_partial_messageable(thread.id)
                first = [each async for each in place.history(limit=MOST_MESSAGES, oldest_first=True)]
        except CountersignError as error:
            log.info("beginning of thread %s not loaded: %s", thread.id, error)
            return True
        return any(str(each.author.id) == me and each.type in _SPOKEN for each in first)

    async def _read_beginning(self, thread: discord.Thread) -> None:
        spot = from_channel(thread.parent)
        if spot is None:
            return
        client = await self._platform.rest.client()
        try:
            with map_errors("read what was said meanwhile"):
                # A thread that was opened at a message has its id.
                message = await client.get_partial_messageable(thread.parent_id).fetch_message(thread.id)
        except CountersignError as error:
            log.info("beginning of thread %s not loaded: %s", thread.id, error)
        else:
            await self._reception.handle_late(message, spot, thread.guild)


def _key(thread: discord.Thread) -> ConversationKey:
    return conversation(str(thread.guild.id), str(thread.parent_id), str(thread.id))


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
