"""Text from models, tools and users, made safe for any platform.

The result of `strip_control` has letters, line ends and tabs, and nothing that moves a cursor, reorders a line or
hides.
"""

from __future__ import annotations

import re
import unicodedata

from bot.domain.characters import ESCAPES, INVISIBLE

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS = "…"

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_JOINERS = "\u200c\u200d"


def strip_control(text: str) -> str:
    """Return the text with readable characters, line ends and tabs only.

    Escape sequences, controls and invisible characters are removed, lone surrogates become U+FFFD, and stacks of
    combining marks are cut to four. The result of a prefix is a prefix of the result, so that a growing text can be
    printed part by part.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", ESCAPES.sub("", text))
    return _MARKS.sub(r"\1", _SURROGATES.sub(REPLACEMENT, INVISIBLE.sub(_kept_joiner, text)))


def show_invisible(text: str) -> str:
    """Return the text with the code point in place of every character that `strip_control` would remove, for cards,
    where users approve exactly the visible text.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SURROGATES.sub(_spelled, INVISIBLE.sub(_spelled, text.replace("\r\n", "\n")))
    return _MARKS.sub(_spelled_pile, _LINE_ENDS.sub(_spelled, text))


def single_line(text: str, limit: int) -> str:
    """Return the text on one line of at most `limit` characters, with an ellipsis if it was cut."""
    line = " ".join(strip_control(text[: max(limit, 0) * 8 + 1000]).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + ELLIPSIS if limit > 0 else ""


def _kept_joiner(match: re.Match[str]) -> str:
    """Joiners stay between letters that need them (Persian, the scripts of India); everywhere else they only hide."""
    if match.group() not in _JOINERS:
        return ""
    whole, start, end = match.string, match.start(), match.end()
    around = (whole[start - 1 : start], whole[end : end + 1])
    return match.group() if all(each and _joins(each) for each in around) else ""


def _joins(character: str) -> bool:
    return unicodedata.category(character) in ("Lo", "Mn", "Mc") and not INVISIBLE.match(character)


def _spelled(match: re.Match[str]) -> str:
    return _code_point(match.group())


def _spelled_pile(match: re.Match[str]) -> str:
    """Four marks as they are, the rest of the pile by name."""
    return match[1] + "".join(map(_code_point, match[0][len(match[1]) :]))


def _code_point(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"
