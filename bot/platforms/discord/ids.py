"""Keys of Discord conversations and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from bot.domain.conversations import ConversationKey

PLATFORM = "discord"
ROLE = "discord-role:"
"""A role as settings and profiles name it: `discord-role:` and the role's id."""


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
        found = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20})", text)
        return cls(*found.groups()) if found is not None else None


def conversation(server: str, channel: str, thread: str = "") -> ConversationKey:
    """Return the key of a thread, or of the channel if `thread` is empty. `server` is the id of the guild. A direct
    conversation belongs to the user's guild, and its channel is the direct channel.
    """
    return ConversationKey(PLATFORM, server, channel, thread)


def channel_id_of(key: ConversationKey) -> str:
    """Return the channel or thread that a conversation is delivered to. A thread has the id of its first message."""
    return key.thread or key.channel


def message_key(message: str) -> str:
    """Return the key that deduplicates a message; ids are unique in all of Discord."""
    return f"{PLATFORM}:{message}"
