"""What people type in Discord as it reads on their screen: mentions, channels, roles, times and emoji by their names.

The syntax is that of "Message Formatting" in Discord's reference. Called by what reads messages. What comes out is
data and is shown to the model as such; it must never be sent to Discord without being made inert.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

_TOKEN = re.compile(
    r"""
      <@!?(?P<user>\d{1,20})>
    | <@&(?P<role>\d{1,20})>
    | <\#(?P<channel>\d{1,20})>
    | <a?(?P<emoji>:\w{2,32}:)\d{1,20}>
    | <t:(?P<time>-?\d{1,13})(?::[tTdDfFRsS])?>
    | <(?P<command>/[^<>:\n]{1,100}):\d{1,20}>
    """,
    re.VERBOSE | re.ASCII,
)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MentionResolver:
    """Names of people, roles and channels by id, as far as they are known."""

    people: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def to_plain_text(text: str, names: MentionResolver) -> str:
    """The text as it reads on the screen. What stands in code reads as it was typed."""
    pieces = _CODE.split(text)
    return "".join(
        piece if index % 2 else _TOKEN.sub(lambda match: _token(match, names), piece)
        for index, piece in enumerate(pieces)
    )


def strip_bot_mention(text: str, calls: tuple[str, ...]) -> str:
    """The text without the mentions it begins or ends with; `calls` are those that call the bot, as they are typed."""
    if not calls:
        return text.strip()
    mention = "|".join(map(re.escape, calls))
    text = re.sub(rf"^(?:\s*(?:{mention})[\s,:]*)+", "", text)
    return re.sub(rf"(?:\s*(?:{mention}))+\s*$", "", text).strip()


def _token(match: re.Match[str], names: MentionResolver) -> str:
    value = match.group()
    match match.lastgroup:
        case "user":
            value = f"@{names.people.get(match['user'], match['user'])}"
        case "role":
            value = f"@{names.roles.get(match['role'], match['role'])}"
        case "channel":
            value = f"#{names.channels.get(match['channel'], match['channel'])}"
        case "emoji":
            value = match["emoji"]
        case "time":
            value = _time(int(match["time"])) or value
        case "command":
            value = match["command"]
    return value


def _time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""
