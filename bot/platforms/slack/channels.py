"""Channels, threads and messages of Slack: their references, their keys, and direct conversations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from bot.domain.conversations import ConversationKey
from bot.errors import DeliveryFailed
from bot.i18n import gettext_lazy
from bot.platforms.slack.web_api import SlackWebApiError, WebApi

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
        """Parse the text form; return None if it is invalid."""
        channel, colon, ts = text.partition(":")
        return cls(channel, ts) if channel and colon and ts else None


@dataclass(frozen=True, slots=True)
class ChannelRef:
    """Location of a user: a channel, an optional thread in it, and the type of the channel."""

    channel: str
    user: str
    thread: str = ""

    @property
    def direct(self) -> bool:
        """True for a direct conversation with the bot."""
        return self.channel.startswith("D")


def conversation(team: str, channel: str, thread: str) -> ConversationKey:
    """Return the key of a thread, named by its first message, or of the channel if `thread` is empty."""
    return ConversationKey(PLATFORM, team, channel, thread)


def message_keys(team: str, channel: str, ts: str, user: str, client_id: str = "") -> tuple[str, ...]:
    """Return the keys that deduplicate a message: its location, and the id of its author's client, which stays the same
    if the client sends it twice.
    """
    place = f"{PLATFORM}:{team}:{channel}:{ts}"
    return (place, f"{PLATFORM}:{team}:{channel}:{user}:{client_id}") if client_id else (place,)


async def is_member(api: WebApi, ref: ChannelRef) -> bool:
    """Return True if the bot may post where the user is: it is in the channel. Raises DeliveryFailed if that is unclear
    for now.
    """
    if ref.direct:
        return True
    try:
        answer = await api.read("conversations.info", channel=ref.channel)
    except SlackWebApiError as error:
        if error.code == "missing_scope":
            return True  # posting tells
        if not error.permanent:
            raise
        return False
    channel = answer.get("channel")
    return isinstance(channel, dict) and bool(channel.get("is_member") or channel.get("is_im"))


async def direct_channel(api: WebApi, user: str) -> str:
    """Return the direct conversation with a user. Raises DeliveryFailed."""
    answer = await api.edit("conversations.open", users=user)
    channel = answer.get("channel")
    channel_id = str(channel.get("id") or "") if isinstance(channel, dict) else ""
    if not channel_id:
        raise DeliveryFailed(gettext_lazy("Slack opened no direct conversation with that person."), permanent=True)
    return channel_id
