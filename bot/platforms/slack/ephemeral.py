"""Ephemeral messages: rejections, hints and results of actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.platforms.slack.markup import defuse_mentions, escape
from bot.platforms.slack.outgoing import CommandReply
from bot.platforms.slack.web_api import WebApi


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


def text_message(text: str) -> CommandReply:
    """Return a message of one plain sentence."""
    return CommandReply((), escape(defuse_mentions(text)))


async def send_ephemeral(api: WebApi, spot: ChannelRef, sheet: CommandReply) -> None:
    """Post an ephemeral message; in a direct conversation a regular one. Raises DeliveryFailed."""
    content: dict[str, Any] = {"text": sheet.text, "blocks": list(sheet.blocks) or None}
    thread = spot.thread or None
    if spot.direct:
        await api.post(
            "chat.postMessage",
            channel=spot.channel,
            thread_ts=thread,
            unfurl_links=False,
            unfurl_media=False,
            **content,
        )
        return
    await api.post("chat.postEphemeral", channel=spot.channel, user=spot.user, thread_ts=thread, **content)
