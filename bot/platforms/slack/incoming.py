"""One message as Slack's events deliver it, read into a value; everything that nobody said to anybody is left out.

Left out are the bot's own messages and other bots', edits, deletions, and every subtype but those that are a person
writing: with a file, or also to the channel. Must not decide whether the bot is meant (`attention.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.domain.conversations import Attachment
from bot.platforms.slack.files import attachments
from bot.platforms.slack.markup import mentioned_people
from bot.platforms.slack.web_api import Identity

LONGEST_TEXT = 40_000
"""In characters: what Slack lets a person send."""
_SPOKEN = frozenset({"", "file_share", "thread_broadcast"})


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    """A person's message. `thread` is the timestamp of the thread's first message, which may be this one. `notified`
    says that this is the one event of several about a message to answer by oneself: what has no row must happen once,
    also when the others go to another process.
    """

    channel: str
    user: str
    text: str
    ts: str
    thread: str
    direct: bool
    notified: bool
    client_id: str = ""
    files: tuple[Attachment, ...] = ()
    mentions: tuple[str, ...] = ()

    @property
    def opens_thread(self) -> bool:
        """Nothing was said in its thread before."""
        return self.thread == self.ts


def parse_message(event: Mapping[str, Any], identity: Identity) -> IncomingMessage | None:
    """The message in an event of type `message` or `app_mention`, None if it is none of a person's."""
    if event.get("type") not in ("message", "app_mention"):
        return None
    user, channel, ts = (str(event.get(name) or "") for name in ("user", "channel", "ts"))
    if not (user and channel and ts) or user in (identity.user, "USLACKBOT"):
        return None
    unspoken = str(event.get("subtype") or "") not in _SPOKEN
    if unspoken or any(event.get(flag) for flag in ("bot_id", "bot_profile", "edited", "hidden")):
        return None
    text = str(event.get("text") or "")[:LONGEST_TEXT]
    direct = event.get("channel_type") == "im" or (not event.get("channel_type") and channel.startswith("D"))
    return IncomingMessage(
        channel=channel,
        user=user,
        text=text,
        ts=ts,
        thread=str(event.get("thread_ts") or ts),
        direct=direct,
        notified=direct or event.get("type") == "app_mention",
        client_id=str(event.get("client_msg_id") or "")[:100],
        files=attachments(event),
        mentions=mentioned_people(text),
    )
