"""Short words to one person: refusals, hints, what became of a press."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.platforms.slack.slots import Sheet
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.wording import escaped, silenced


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a person stands: a channel, a thread in it (or none), and whether only they and the bot are there."""

    channel: str
    user: str
    thread: str = ""

    @property
    def direct(self) -> bool:
        """A direct conversation with the bot."""
        return self.channel.startswith("D")


def plain_sheet(text: str) -> Sheet:
    """A sheet of one plain sentence."""
    return Sheet((), escaped(silenced(text)))


async def whisper(api: WebApi, spot: Spot, sheet: Sheet) -> None:
    """Show something to one person alone; in a direct conversation as a message that stays. Raises DeliveryFailed."""
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
