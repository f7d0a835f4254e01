"""Location of a message or an interaction: a channel of a guild, a thread in it, or a direct conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import discord

_THREADS = frozenset({10, 11, 12})
"""Types of channels that are threads ("Channel Types"): of announcements, public, private."""
_DIRECT = 1


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """A channel with a conversation. `server` is empty in a direct conversation, `thread` outside of threads;
    `opens_threads` is True if the bot may open a thread at a message there and write in it.
    """

    server: str
    channel: str
    thread: str = ""
    opens_threads: bool = False

    @property
    def direct(self) -> bool:
        """True for a direct conversation with the bot."""
        return not self.server

    @property
    def place(self) -> str:
        """Id of the channel or thread that contains the messages."""
        return self.thread or self.channel


def from_channel(channel: Any) -> ChannelRef | None:
    """Return the location of a library channel, or None if only its id is known."""
    match channel:
        case discord.DMChannel():
            return ChannelRef("", str(channel.id))
        case discord.Thread():
            return ChannelRef(str(channel.guild.id), str(channel.parent_id), str(channel.id))
        case discord.TextChannel():
            return ChannelRef(str(channel.guild.id), str(channel.id), opens_threads=_may_open(channel))
        case discord.abc.GuildChannel():
            return ChannelRef(str(channel.guild.id), str(channel.id))
        case _:
            return None


def from_json(channel: Mapping[str, Any]) -> ChannelRef | None:
    """Return the location of a channel in REST's JSON. `opens_threads` is not known from it."""
    kind, found = channel.get("type"), str(channel.get("id") or "")
    server, parent = str(channel.get("guild_id") or ""), str(channel.get("parent_id") or "")
    if kind == _DIRECT and found:
        return ChannelRef("", found)
    if kind in _THREADS and found and server and parent:
        return ChannelRef(server, parent, found)
    return ChannelRef(server, found) if found and server else None


def _may_open(channel: discord.TextChannel) -> bool:
    # The bot's own member is the one that is always kept, and its changes are told without the Members intent.
    me: discord.Member | None = channel.guild.me  # None while the server has not been described
    may = channel.permissions_for(me) if me is not None else discord.Permissions.none()
    return may.view_channel and may.create_public_threads and may.send_messages_in_threads
