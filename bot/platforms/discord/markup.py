"""Discord's markup: escaping of text that is sent, and plain text of messages that are received.

No format, mention, time, emoji or command of escaped text remains. The syntax is that of Discord's clients ("Message
Formatting"). A backslash escapes a mark; an invisible word joiner splits a token. Received text is untrusted data:
escape it before it is sent to Discord.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bot.rendering.text_safety import find_urls, single_line


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, the highest count that Discord may use."""
    return len(text) + sum(each > "\uffff" for each in text)


JOINER = "\N{WORD JOINER}"

_MARKS = re.compile(
    r"""
      (?P<mark>
          [\\*`\[\]]                             # bold, italic, code, links
        | (?<![0-9A-Za-z])_ | _(?![0-9A-Za-z])   # italic, underlined: one alone in a word, of ASCII, does nothing
        | ~(?=~) | (?<=~)~ | \|(?=\|) | (?<=\|)\|   # struck, hidden
      )
    | (?P<lead>^[^\S\n]*(?:\d{1,9}(?=\.\s))?)    # a heading, small text, an item of a list, a quote; any blank counts
      (?P<first>\#(?=\#{0,5}\s) | -(?=\#|\s) | [+.](?=\s) | >)
    """,
    re.VERBOSE | re.MULTILINE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?=/)", re.IGNORECASE)
_NAMES = re.compile(r"<(?=[@#:/a-zA-Z])(?!https?://)|@(?=everyone|here)", re.IGNORECASE)


def escape(text: str) -> str:
    """Escape text. Web addresses in it stay links, because Discord links them by itself."""
    urls = find_urls(text)
    starts = [start for start, _ in urls]

    def in_address(at: int) -> bool:
        before = bisect_right(starts, at) - 1
        return before >= 0 and at < urls[before][1]

    def mark(match: re.Match[str]) -> str:
        if in_address(match.start()):
            return match.group()
        return f"\\{match['mark']}" if match["mark"] else f"{match['lead']}\\{match['first']}"

    return defuse_mentions(_MARKS.sub(mark, text))


def break_links(text: str) -> str:
    """Escape text and break each web address after its scheme, so that Discord does not link it."""
    return escape(_SCHEME.sub(lambda match: f"{match.group()}{JOINER}", text))


def truncate(text: str, limit: int) -> str:
    """Return the beginning of a text, at most `limit` characters as Discord counts them."""
    while (over := utf16_length(text) - limit) > 0:
        text = text[: len(text) - (over + 1) // 2]
    return text


def shorten_label(text: str, limit: int) -> str:
    """Return a label on one line, at most `limit` characters as Discord counts them, for places without Markdown."""
    room = limit
    while utf16_length(made := single_line(text, room)) > limit:
        room -= max((utf16_length(made) - limit) // 2, 1)
    return made


def escape_to_limit(text: str, limit: int) -> str:
    """Return escaped text on one line, at most `limit` characters as Discord counts them."""
    room = limit
    while utf16_length(made := escape(single_line(text, room))) > limit:
        room -= max(utf16_length(made) - limit, 1)
    return made


def defuse_mentions(text: str) -> str:
    """Return Discord Markdown without mentions: `<@1>` and `@everyone` notify no user."""
    return _NAMES.sub(lambda match: match.group() + JOINER, text)


def escape_code_fence(text: str) -> str:
    """Return text that cannot end a code block, for cards and tables: joiners separate its backticks."""
    return text.replace("``", f"`{JOINER}`").replace("``", f"`{JOINER}`")


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
    """Known names of users, roles and channels, by id."""

    people: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, str] = field(default_factory=dict)


def to_plain_text(text: str, names: MentionResolver) -> str:
    """Return the text as Discord displays it. Code stays unchanged."""
    pieces = _CODE.split(text)
    return "".join(
        piece if index % 2 else _TOKEN.sub(lambda match: _token(match, names), piece)
        for index, piece in enumerate(pieces)
    )


def strip_bot_mention(text: str, calls: tuple[str, ...]) -> str:
    """Return the text without a mention at its beginning or end; `calls` are the mentions of the bot."""
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
