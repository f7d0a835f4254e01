"""How a conversation and a message of Discord's are named on disk."""

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
        """Read the text form back; None for anything else."""
        found = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20})", text)
        return cls(*found.groups()) if found is not None else None


def conversation(server: str, channel: str, thread: str = "") -> ConversationKey:
    """The conversation in a thread of a channel; with no thread, the channel itself. `server` is the Discord server's
    id (its guild); a direct conversation belongs to the server whose member the person is, and its channel is the
    direct one.
    """
    return ConversationKey(PLATFORM, server, channel, thread)


def channel_id_of(key: ConversationKey) -> str:
    """The channel or thread in which a conversation is drawn. A thread has the id of the message it was opened at."""
    return key.thread or key.channel


def message_key(message: str) -> str:
    """What a message is known by however often it is delivered: ids are unique in all of Discord."""
    return f"{PLATFORM}:{message}"
