"""Calls of the bot that nobody heard: mentions in channels, and in threads in which it has no turn, while no process
received.

Called when a new session begins. Found are messages that mention the bot in places where something was said since the
last turn there is; what became a thread has been heard. Bounded in places and in messages of each.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Container

import discord

from bot.errors import CountersignError
from bot.platforms.discord.channel_ref import ChannelRef, from_channel
from bot.platforms.discord.errors import map_errors
from bot.platforms.discord.incoming import parse_message
from bot.platforms.discord.rest import Rest
from bot.platforms.discord.users import UserDirectory

log = logging.getLogger(__name__)

MOST_PLACES = 50
MOST_MESSAGES = 100

Place = discord.TextChannel | discord.VoiceChannel | discord.StageChannel | discord.Thread


async def missed_mentions(
    client: discord.Client, rest: Rest, people: UserDirectory, since: int, known: Container[int]
) -> AsyncGenerator[tuple[discord.Message, ChannelRef, discord.Guild], None]:
    """Messages that mention the bot and are newer than the id `since`, with where they stand; those in the places whose
    ids are `known` are left out. Raises DeliveryFailed if Discord does not say who the bot is.
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
            log.info("what was said in channel %s meanwhile could not be read: %s", place.id, error)
            continue
        for message in found:
            said = parse_message(message, me, place.guild)
            if said is not None and said.calls_bot and not message.flags.has_thread:
                yield message, spot, place.guild


def _lively(client: discord.Client, people: UserDirectory, since: int, known: Container[int]) -> list[Place]:
    """Where something was said since, the latest first, as far as the bot may read there."""
    places = [
        place
        for guild in client.guilds
        if people.serves(str(guild.id))
        for place in _places(guild)
        if (place.last_message_id or 0) > since and place.id not in known and _readable(place)
    ]
    return sorted(places, key=lambda place: place.last_message_id or 0, reverse=True)[:MOST_PLACES]


def _places(guild: discord.Guild) -> tuple[Place, ...]:
    """Where people write."""
    return (*guild.text_channels, *guild.voice_channels, *guild.stage_channels, *guild.threads)


def _readable(place: Place) -> bool:
    me: discord.Member | None = place.guild.me
    if me is None or (isinstance(place, discord.Thread) and place.parent is None):
        return False
    may = place.permissions_for(me)
    return may.view_channel and may.read_message_history
