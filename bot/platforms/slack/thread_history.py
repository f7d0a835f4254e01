"""What was said in a thread before a message, read from Slack.

What the bot has said or answered itself is in its own transcript and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.errors import DeliveryFailed
from bot.platforms.slack.web_api import Identity, WebApi

PAGE = 200
MOST_PAGES = 5


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message of a thread. `speaker` is a bot's own name, empty for people; `text` is as Slack delivers it."""

    ts: str
    user: str
    speaker: str
    text: str
    files: tuple[str, ...] = ()


async def read_thread(
    api: WebApi, identity: Identity, channel: str, thread: str, before: str, *, may_read: Callable[[], bool]
) -> tuple[ThreadMessage, ...]:
    """Return everything in a thread before a timestamp that the bot has not said itself, oldest first. `may_read` is
    asked before each call. Raises DeliveryFailed.
    """
    found: list[ThreadMessage] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        if not may_read():
            raise DeliveryFailed("This user's share of conversations.replies is used up.")
        answer = await api.read(
            "conversations.replies", channel=channel, ts=thread, latest=before, limit=PAGE, cursor=cursor
        )
        messages = answer.get("messages")
        found += [
            line
            for message in (messages if isinstance(messages, list) else ())
            if isinstance(message, dict) and (line := _earlier(message, identity)) and _is_before(line.ts, before)
        ]
        metadata = answer.get("response_metadata")
        cursor = str(metadata.get("next_cursor") or "") if isinstance(metadata, dict) else ""
        if not cursor:
            break
    return tuple(found)


def _earlier(message: Mapping[str, Any], identity: Identity) -> ThreadMessage | None:
    user, bot = str(message.get("user") or ""), str(message.get("bot_id") or "")
    if user == identity.user or (bot and bot == identity.bot) or message.get("hidden"):
        return None
    profile = message.get("bot_profile")
    named = profile.get("name") if isinstance(profile, dict) else ""
    files = message.get("files")
    names = (
        [str(each.get("name") or "file") for each in files if isinstance(each, dict)] if isinstance(files, list) else []
    )
    text = str(message.get("text") or "") or _fallback(message)
    if not (text or names):
        return None
    speaker = str(message.get("username") or named or "a bot") if bot else ""
    return ThreadMessage(str(message.get("ts") or ""), user, speaker, text, tuple(names))


def _fallback(message: Mapping[str, Any]) -> str:
    """What a bot says that writes in attachments alone."""
    attached = message.get("attachments")
    parts = [each for each in attached if isinstance(each, dict)] if isinstance(attached, list) else []
    return "\n".join(str(each.get("fallback") or each.get("text") or "") for each in parts).strip()


def _is_before(ts: str, before: str) -> bool:
    return _number(ts) < _number(before)


def _number(ts: str) -> tuple[int, int]:
    seconds, _, micros = ts.partition(".")
    return (int(seconds), int(micros or 0)) if seconds.isdigit() and (micros or "0").isdigit() else (0, 0)
