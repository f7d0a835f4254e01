"""Channels, threads and messages of Discord: their references, their keys, direct conversations, and threads that begin
with a question.

A thread opened at a message has that message's id, and there is never a second one (160004): opening twice, in two
processes or after a crash, ends in the same conversation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

import discord

from bot.domain.conversations import ConversationKey
from bot.i18n import gettext_lazy
from bot.platforms.discord.markdown import utf16_length
from bot.platforms.discord.rest import UNKNOWN_MESSAGE, DiscordApiError, Rest
from bot.rendering.text_safety import ELLIPSIS, single_line

PLATFORM = "discord"
ROLE = "discord-role:"
"""A role as settings and profiles name it: `discord-role:` and the role's id."""
CHANNELS_URL = "https://discord.com/channels"
EXISTS = 160004
LONGEST_NAME = 100
UNNAMED = gettext_lazy("Question")
_MARKS = re.compile(r"^(?:\s*(?:[>#*+-]|-#|\d+[.)]))+\s+|[*_~`|]{2,}|(?<!\w)[*_`](?=\w)|(?<=\w)[*_`](?!\w)")


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One message: the channel or thread it stands in, and its id there."""

    channel: str
    message: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.message}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the text form; return None if it is invalid."""
        match = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20})", text)
        return cls(*match.groups()) if match is not None else None


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """A channel with a conversation. `server` is empty in a direct conversation, `thread` and `thread_name` outside of
    threads; `opens_threads` is True if the bot may open a thread at a message there and write in it.
    """

    server: str
    channel: str
    thread: str = ""
    opens_threads: bool = False
    thread_name: str = ""

    @property
    def direct(self) -> bool:
        """True for a direct conversation with the bot."""
        return not self.server

    def post_title(self, message: str) -> str:
        """Return the title of a post in a forum if this is its first message, which has the id of the thread."""
        return self.thread_name if message == self.thread else ""

    @property
    def place(self) -> str:
        """Id of the channel or thread that contains the messages."""
        return self.thread or self.channel


def conversation(server: str, channel: str, thread: str = "") -> ConversationKey:
    """Return the key of a thread, or of the channel if `thread` is empty. `server` is the id of the guild. A direct
    conversation belongs to the user's guild, and its channel is the direct channel.
    """
    return ConversationKey(PLATFORM, server, channel, thread)


def channel_id_of(key: ConversationKey) -> str:
    """Return the channel or thread that a conversation is delivered to. A thread has the id of its first message."""
    return key.thread or key.channel


def message_url(server: str, ref: MessageRef) -> str:
    """Return the URL of a message; `server` is empty for one in no guild."""
    return f"{CHANNELS_URL}/{server or '@me'}/{ref.channel}/{ref.message}"


def message_key(message: str) -> str:
    """Return the key that deduplicates a message; ids are unique in all of Discord."""
    return f"{PLATFORM}:{message}"


def from_channel(channel: Any) -> ChannelRef | None:
    """Return the location of a library channel, or None if only its id is known."""
    match channel:
        case discord.DMChannel():
            return ChannelRef("", str(channel.id))
        case discord.Thread():
            name = single_line(channel.name, LONGEST_NAME)
            return ChannelRef(str(channel.guild.id), str(channel.parent_id), str(channel.id), thread_name=name)
        case discord.TextChannel():
            return ChannelRef(str(channel.guild.id), str(channel.id), opens_threads=_may_open(channel))
        case discord.abc.GuildChannel():
            return ChannelRef(str(channel.guild.id), str(channel.id))
        case _:
            return None


async def fetch_channel(rest: Rest, channel: str) -> ChannelRef | None:
    """Return the location of a channel by its id, without the bot's permissions there; None for other text and for a
    channel without messages. Raises DeliveryFailed.
    """
    if not channel.isdecimal():
        return None
    async with rest.request(gettext_lazy("look at a channel")) as client:
        return from_channel(await client.fetch_channel(int(channel)))


def _may_open(channel: discord.TextChannel) -> bool:
    # The bot's own member is the one that is always kept, and its changes are told without the Members intent.
    me: discord.Member | None = channel.guild.me  # None while the server has not been described
    may = channel.permissions_for(me) if me is not None else discord.Permissions.none()
    return may.view_channel and may.create_public_threads and may.send_messages_in_threads


async def open_thread(rest: Rest, channel: str, message: str, question: str) -> str:
    """Open a thread at a message, named after its text, and return its id; empty if the bot may open none. Raises
    DeliveryFailed if the result is unknown or the message is missing.
    """
    try:
        async with rest.request(gettext_lazy("open a thread")) as client:
            await client.http.start_thread_with_message(
                int(channel), int(message), name=thread_name(question), auto_archive_duration=1440
            )
    except DiscordApiError as refusal:
        if refusal.code == EXISTS:
            return message
        if refusal.permanent and refusal.status != 401 and refusal.code != UNKNOWN_MESSAGE:
            return ""
        raise
    return message


async def direct_channel(rest: Rest, user: str) -> str:
    """Return the id of the direct channel, opening it if needed. Raises DeliveryFailed."""
    async with rest.request(gettext_lazy("write to somebody")) as client:
        return str((await client.create_dm(discord.Object(int(user)))).id)


def thread_name(question: str) -> str:
    """Return the name of a message's thread, from plain text without mentions. Never empty."""
    lines = (_MARKS.sub("", line) for line in question.splitlines())
    line = next((name for line in lines if (name := single_line(line, LONGEST_NAME * 2)).strip(" `*_~|>#-")), "")
    if utf16_length(line) <= LONGEST_NAME:
        return line or str(UNNAMED)
    beginning = line[:LONGEST_NAME]
    while utf16_length(beginning) > LONGEST_NAME:
        beginning = beginning[:-1]
    whole_words, _, _ = beginning.rpartition(" ")
    return (whole_words.rstrip(" ,.;:-") or beginning[:-1]) + ELLIPSIS
