"""Escaping of text for Discord, and Discord's limits in characters or items (docs.discord.com and discord.py 2.7).

No format, mention, time, emoji or command remains. The syntax is that of Discord's clients ("Message Formatting"). A
backslash escapes a mark; an invisible word joiner splits a token.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from bot.rendering.text_safety import find_urls, single_line

CONTENT = 2_000
DISPLAYED = 4_000
"""All the text of a message that is laid out."""
DISPLAYED_BYTES = 9_600
"""The same in UTF-8. Discord answers with status 500 beyond some 10,170 bytes with twelve more for each text, which is
not documented (discord-api-docs#8554), and would do so however often the message is sent.
"""
COMPONENTS = 40
"""In one message that is laid out, those within others counted too."""
BUTTONS_A_ROW = 5
ROWS = 5
"""Rows of buttons below a plain message."""
BUTTON_LABEL = 80
LINK = 512
"""The address that a button leads to."""
CUSTOM_ID = 100
OPTIONS, OPTION_TEXT, PLACEHOLDER = 25, 100, 150
NONCE = 25
FILE = 10 * 1024 * 1024
"""Bytes of one file in a guild without boosts."""


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, the highest count that Discord may use."""
    return len(text) + sum(each > "\uffff" for each in text)


def display_length(text: str) -> int:
    """Return the share of DISPLAYED that a text takes in a layout at most: its length, or its share of DISPLAYED_BYTES
    scaled to DISPLAYED, the higher one.
    """
    return max(utf16_length(text), -(-len(text.encode("utf-8", "replace")) * DISPLAYED // DISPLAYED_BYTES))


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
    """Return text that cannot end a code block."""
    return text.replace("``", f"`{JOINER}`").replace("``", f"`{JOINER}`")
