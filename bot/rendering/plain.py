"""Text from models, tools and people made safe to draw anywhere.

Called wherever such text meets a screen. Must not know which platform draws it: what is left after `plain` is
letters, line ends and tabs, and nothing that moves a cursor, reorders a line or hides.
"""

from __future__ import annotations

import re
import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
ELLIPSIS = "…"

_ESCAPES = re.compile(
    r"""
      (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])      # OSC, DCS, SOS, PM, APC and what they carry, which ends at
      [^\x07\x1b\x9c\n]*                           # BEL, ESC \, ST; or at a line end, so that nothing can
      (?:\x07|\x1b\\|\x9c|(?=\n)|(?=\x1b)|\Z)      # swallow the rest of an answer
    | (?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|(?=[^ -~])|\Z)   # CSI: parameters, intermediates, final byte
    | \x1b[ -/]*(?:[0-~]|(?=[^ -~])|\Z)            # the short ones: ESC c, ESC 7, ESC ( B
    """,
    re.VERBOSE,
)
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")

# Beside the categories Cc and Cf: characters that draw nothing (Unicode's Default_Ignorable_Code_Point) and the
# variation selectors, which can carry hidden data.
_IGNORABLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
_FORMATS = (
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
_FORMATS_BEYOND = "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
_INVISIBLE = re.compile(f"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f{_IGNORABLE}{_FORMATS}{_FORMATS_BEYOND}]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4})"
    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+"
)
_JOINERS = "\u200c\u200d"


def plain(text: str) -> str:
    """Text with nothing in it but what can be read, line ends and tabs.

    Escape sequences go as a whole, controls and invisible characters go, lone surrogates become U+FFFD, piles of
    combining marks are cut to four. The result of a beginning is a beginning of the result, so a growing text can be
    cleaned again and again and only its new part printed.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", _ESCAPES.sub("", text))
    return _MARKS.sub(r"\1", _SURROGATES.sub(REPLACEMENT, _INVISIBLE.sub(_kept_joiner, text)))


def revealed(text: str) -> str:
    """Text in which everything `plain` would remove is spelled out by its code point: for cards, where people sign
    exactly what they see.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SURROGATES.sub(_spelled, _INVISIBLE.sub(_spelled, text.replace("\r\n", "\n")))
    return _MARKS.sub(_spelled_pile, _LINE_ENDS.sub(_spelled, text))


def one_line(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters, an ellipsis for what did not fit."""
    line = " ".join(plain(text[: max(limit, 0) * 8 + 1000]).split())
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
    return unicodedata.category(character) in ("Lo", "Mn", "Mc") and not _INVISIBLE.match(character)


def _spelled(match: re.Match[str]) -> str:
    return _code_point(match.group())


def _spelled_pile(match: re.Match[str]) -> str:
    """Four marks as they are, the rest of the pile by name."""
    return match[1] + "".join(map(_code_point, match[0][len(match[1]) :]))


def _code_point(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"
