"""Invisible characters, and text without them.

Hidden text can give a model instructions that no reviewer reads: escape sequences of terminals, controls of writing
direction, tag characters, joiners and variation selectors in places where they change nothing.
"""

from __future__ import annotations

import re
import unicodedata

ESCAPES = re.compile(
    r"""
      (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])      # OSC, DCS, SOS, PM, APC and what they carry, which ends at
      [^\x07\x1b\x9c\n]*                           # BEL, ESC \, ST; or at a line end, so that nothing can
      (?:\x07|\x1b\\|\x9c|(?=\n)|(?=\x1b)|\Z)      # swallow the rest of an answer
    | (?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|(?=[^ -~])|\Z)   # CSI: parameters, intermediates, final byte
    | \x1b[ -/]*(?:[0-~]|(?=[^ -~])|\Z)            # the short ones: ESC c, ESC 7, ESC ( B
    """,
    re.VERBOSE,
)
"""Escape sequences of terminals."""

# Beside the categories Cc and Cf: characters that draw nothing (Unicode's Default_Ignorable_Code_Point) and the
# variation selectors, which can carry hidden data.
_IGNORABLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff"
)
_FORMATS = (
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
_FORMATS_BEYOND = "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
INVISIBLE = re.compile(f"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f{_IGNORABLE}{_FORMATS}{_FORMATS_BEYOND}]")
"""One invisible character, line ends and tabs aside."""

_HIDDEN = re.compile(
    "(?P<flag>\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f)"  # the flags of England, Scotland and Wales
    f"|{INVISIBLE.pattern}|[\ud800-\udfff]|\r(?!\n)"
)
_NUMBER_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Formats that are drawn, before the digits they belong to."""
_JOINERS = "\u200c\u200d"
_SPACE = "\u200b"
_MONGOLIAN = "\u180b\u180c\u180d\u180f"
_JOINING = re.compile("[\u0600-\u109f\u1780-\u1cff\ua800-\uaaff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff]")
"""Scripts in which joiners change how letters are drawn, at the end of a word as well."""
_WITHOUT_BLANKS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
"""Thai, Lao, Burmese, Khmer: a space without width parts their words."""
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_DRAWN_AS_EMOJI = frozenset("#*0123456789\u203c\u2049\u2139\u3030\u303d")


def visible(text: str) -> str:
    """Return the text without invisible characters. Letters, blanks, tabs and line ends are kept, and so are the
    joiners and selectors of emoji and of scripts that need them. A lone CR becomes a line end, half of a surrogate pair
    U+FFFD.
    """
    bare = ESCAPES.sub("", text) if "\x1b" in text or not text.isascii() else text
    return _HIDDEN.sub(_clean_character, bare)


def _clean_character(match: re.Match[str]) -> str:
    character = match.group()
    before, after = match.string[: match.start()][-1:], match.string[match.end() : match.end() + 1]
    if match["flag"] or character in _NUMBER_SIGNS:
        return character
    if character == "\r":
        return "\n"
    if "\ud800" <= character <= "\udfff":
        return "\N{REPLACEMENT CHARACTER}"
    return character if _is_drawn(character, before, after) else ""


def _is_drawn(character: str, before: str, after: str) -> bool:
    """Return True if the character changes how its neighbours are drawn."""
    if character in _JOINERS:
        letters = _is_letter(before) and (_is_letter(after) or _JOINING.match(before) is not None)
        return (letters and after not in _JOINERS) or (character == "\u200d" and _is_emoji(before) and _is_emoji(after))
    if character == _SPACE:
        return bool(_WITHOUT_BLANKS.match(before) and _WITHOUT_BLANKS.match(after))
    if character in _MONGOLIAN:
        return "\u1820" <= before <= "\u18aa"
    if "\ufe00" <= character <= "\ufe0f":
        return _is_symbol(before) or _IDEOGRAPH.match(before) is not None
    return "\U000e0100" <= character <= "\U000e01ef" and _IDEOGRAPH.match(before) is not None


def _is_letter(character: str) -> bool:
    return bool(character) and unicodedata.category(character) in ("Lo", "Mn", "Mc") and not INVISIBLE.match(character)


def _is_symbol(character: str) -> bool:
    return bool(character) and (unicodedata.category(character) in ("So", "Sm") or character in _DRAWN_AS_EMOJI)


def _is_emoji(character: str) -> bool:
    """Return True for an emoji and for a possible end of one: a skin tone, a variation selector."""
    return _is_symbol(character) or "\U0001f3fb" <= character <= "\U0001f3ff" or character == "\ufe0f"
