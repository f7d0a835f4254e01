"""Text from models, tools and people made safe to draw anywhere.

Must not know which platform draws it: what is left after `strip_control` is letters, line ends and tabs, and nothing
that moves a cursor, reorders a line or hides.
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
    """Text with nothing in it but what can be read, line ends and tabs.

    Escape sequences go as a whole, controls and invisible characters go, lone surrogates become U+FFFD, piles of
    combining marks are cut to four. The result of a beginning is a beginning of the result, so a growing text can be
    cleaned again and again and only its new part printed.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", ESCAPES.sub("", text))
    return _MARKS.sub(r"\1", _SURROGATES.sub(REPLACEMENT, INVISIBLE.sub(_kept_joiner, text)))


def show_invisible(text: str) -> str:
    """Text in which everything `strip_control` would remove is spelled out by its code point: for cards, where people
    sign exactly what they see.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SURROGATES.sub(_spelled, INVISIBLE.sub(_spelled, text.replace("\r\n", "\n")))
    return _MARKS.sub(_spelled_pile, _LINE_ENDS.sub(_spelled, text))


def single_line(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters, an ellipsis for what did not fit."""
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
