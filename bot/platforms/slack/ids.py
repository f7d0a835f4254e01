"""How a conversation and a message of Slack's are named on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bot.domain.conversations import ConversationKey

PLATFORM = "slack"


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One message: its channel and its timestamp, which is its id there."""

    channel: str
    ts: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.ts}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the text form back; None for anything else."""
        channel, colon, ts = text.partition(":")
        return cls(channel, ts) if channel and colon and ts else None


def conversation(team: str, channel: str, thread: str) -> ConversationKey:
    """The conversation in a thread, which is named by its first message; with an empty one, the channel itself."""
    return ConversationKey(PLATFORM, team, channel, thread)


def message_keys(team: str, channel: str, ts: str, user: str, client_id: str = "") -> tuple[str, ...]:
    """What a message is known by however it is delivered: its place, and the id that its author's client gave it,
    which stays when that client sends it a second time.
    """
    place = f"{PLATFORM}:{team}:{channel}:{ts}"
    return (place, f"{PLATFORM}:{team}:{channel}:{user}:{client_id}") if client_id else (place,)
