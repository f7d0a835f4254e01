"""Invisible characters, text without them, and keys of names.

Hidden text can give a model instructions that no reviewer reads: escape sequences of terminals, controls of writing
direction, tag characters, joiners and variation selectors in places where they change nothing. Emoji, ideographic
variants and scripts that need such characters are whole with them.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from operator import itemgetter

from bot.domain.lazy_pattern import lazy_pattern

ESCAPES = lazy_pattern(
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
INVISIBLE = lazy_pattern(f"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f{_IGNORABLE}{_FORMATS}{_FORMATS_BEYOND}]")
"""One invisible character, line ends and tabs aside."""

FLAG = lazy_pattern(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074"
    "|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
"""The emoji of England, Scotland and Wales: the only ones that are written in tag characters."""
_REMEMBERED = 2_000
"""Longest text that is remembered once looked through: a history is sent with each request of its conversation."""
_FLAG_OR_INVISIBLE = lazy_pattern(f"(?P<flag>{FLAG.pattern})|{INVISIBLE.pattern}")
_UNSEEN = lazy_pattern(f"{INVISIBLE.pattern}|\u2800|(?<= ) | \\Z|\\\\(?=u\\{{)")
_ODD_ENDS = lazy_pattern("[\ud800-\udfff]|\r(?!\n)")
_NUMBER_SIGNS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Formats that are drawn, before the digits or letters they belong to."""
_JOINERS = "\u200c\u200d"
_ZWJ = "\u200d"
_SPACE = "\u200b"
_MONGOLIAN = "\u180b\u180c\u180d\u180f"
_JOINING = lazy_pattern("[\u0600-\u109f\u1780-\u1cff\ua800-\uaaff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff]")
"""Scripts in which joiners change how letters are drawn, at the end of a word as well."""
_WITHOUT_BLANKS = lazy_pattern("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
"""Thai, Lao, Burmese, Khmer: a space without width parts their words."""
_IDEOGRAPH = lazy_pattern("[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_PICTURE = lazy_pattern(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
"""Emoji, their skin tones, and symbols that a selector makes one."""
_KEYS = frozenset("#*0123456789")
_KEYCAP = "\u20e3"


_UNDRAWN = lazy_pattern(f"[{INVISIBLE.pattern[1:-1]}\u0300-\u036f\u20d0-\u20f0\u2800\ufe20-\ufe2f]")
"""Invisible characters, the blank of Braille, and the accents that NFKD separates from letters."""
_CONTROLS = dict.fromkeys((*range(9), *range(14, 32), 127))
_ENCODED = lazy_pattern(
    rf"""
    {ESCAPES.pattern} | <wbr\s*/?>
  | (?P<url>%(?:25)*(?:[0-7][0-9a-f]|[c-f][0-9a-f](?:%(?:25)*[89ab][0-9a-f])+))
  | &(?:amp;)*(?P<html>\#[0-9]{{1,7}}|\#x[0-9a-f]{{1,6}}|[a-z]{{2,31}}(?=;));?
  | \\{{1,7}}(?:u(?P<code>[0-9a-f]{{4}})|x(?P<byte>[0-9a-f]{{2}})|(?P<blank>[nrt])|(?=[^\w\\]))
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Escape sequences, and characters as URLs, HTML and literals of JSON spell them, also encoded again."""
_ENCODED_BEGIN = lazy_pattern("[\x1b\x90\x98\x9b\x9d-\x9f%&<\\\\]")
_PIECE = 128


def fold(text: str, *, blanks: bool = True) -> str:
    """Return the text without its disguises, for a search in it: without encodings, escape sequences, invisible
    characters and accents, and with one letter in place of its wide, bold and other variants; without blanks if
    `blanks` is False.
    """
    text = _ENCODED.sub(_decode, text) if _ENCODED_BEGIN.search(text) else text
    text = text.translate(_CONTROLS) if text.isascii() else _UNDRAWN.sub("", unicodedata.normalize("NFKD", text))
    return text if blanks else "".join(text.split())


def _decode(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "url":
        return bytes.fromhex(re.sub("%(?:25)*", "", match[0])).decode(errors="replace")
    if kind == "html":
        return html.unescape(f"&{match['html']};")
    return " " if kind == "blank" else chr(int(match[kind], 16)) if kind else ""


class FoldedText:
    """Folded text that knows the position of each character in the original."""

    def __init__(self, original: str, *, blanks: bool = True) -> None:
        self._original = original
        self._blanks = blanks
        self._pieces: list[tuple[int, int, int]] = []
        self.text = fold(original, blanks=blanks)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of the original that is folded to the characters from `start` to `end` (exclusive)."""
        return self._position(start)[0], self._position(end - 1)[1]

    def _position(self, index: int) -> tuple[int, int]:
        """Return the part of the original that is folded to one character."""
        self._pieces = self._pieces or list(self._measure_pieces())
        folded, position, end = self._pieces[bisect_right(self._pieces, index, key=itemgetter(0)) - 1]
        while not end and (folded := folded + len(fold(self._original[position], blanks=self._blanks))) <= index:
            position += 1
        return position, end or position + 1

    def _measure_pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yield the begin of each piece in the folded text and in the original, and its end if it is an encoding."""
        folded = begin = 0
        for match in (*_ENCODED.finditer(self._original), None):
            end = match.start() if match else len(self._original)
            for start in range(begin, end, _PIECE):
                yield folded, start, 0
                folded += len(fold(self._original[start : min(start + _PIECE, end)], blanks=self._blanks))
            if match:
                begin = match.end()
                yield folded, end, begin
                folded += len(fold(_decode(match), blanks=self._blanks))


# Letters that many fonts draw like Latin ones, each with that.
_LIKE = (
    "\u0430a\u0432b\u0435e\u043eo\u0440p\u0441c\u0443y\u0445x\u0456i\u0458j\u0455s\u0501d\u051bq\u051dw\u04bbh\u04cfl"
    "\u043ak\u043cm\u043dh\u0442t\u0433r\u0475v\u0410A\u0412B\u0415E\u041aK\u041cM\u041dH\u041eO\u0420P\u0421C\u0422T"
    "\u0423Y\u0425X\u0406I\u0408J\u0405S\u04c0I\u051aQ\u051cW\u04baH\u0474V"
    "\u03b1a\u03bfo\u03bdv\u03c1p\u03b9i\u03bak\u03c5u\u03b3y\u03c7x\u0391A\u0392B\u0395E\u0396Z\u0397H\u0399I\u039aK"
    "\u039cM\u039dN\u039fO\u03a1P\u03a4T\u03a5Y\u03a7X\u0585o\u0578n\u057du\u0570h\u0566q\u0581g\u0131i"
)
AS_LATIN = {ord(foreign): latin for foreign, latin in zip(_LIKE[::2], _LIKE[1::2], strict=True)}
_AS_LETTER = str.maketrans("10|\u2010\u2011\u2012\u2013\u2212", "lol-----", "\U0001d159")


def skeleton(name: str) -> str:
    """Return the same text for all names that can be taken for one another."""
    shown = _UNDRAWN.sub("", unicodedata.normalize("NFKC", name))
    return "".join(shown.translate(AS_LATIN).casefold().translate(_AS_LETTER).split())


def look_alike(name: str, other: str) -> bool:
    """Return True if users can take one name for the other. An I looks like a small L."""
    return skeleton(name).replace("i", "l") == skeleton(other).replace("i", "l")


def name_key(name: str) -> str:
    """Return the key under which names that users would confuse are equal."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def visible(text: str) -> str:
    """Return the text without invisible characters. Letters, blanks, tabs and line ends are kept, and so are the
    joiners and selectors of emoji and of scripts that need them. A lone CR becomes a line end, half of a surrogate pair
    U+FFFD.
    """
    return _visible(text) if len(text) <= _REMEMBERED else _visible.__wrapped__(text)


@lru_cache(maxsize=1_024)
def _visible(text: str) -> str:
    bare = ESCAPES.sub("", text) if "\x1b" in text or not text.isascii() else text
    return _ODD_ENDS.sub(lambda end: "\n" if end[0] == "\r" else "\ufffd", replace_hidden(bare, lambda _character: ""))


def code_point(character: str) -> str:
    """Return the spelled-out form of a character."""
    return f"\\u{{{ord(character):x}}}"


def spell_hidden(text: str) -> str:
    """Return a text on one line, different for every text, with the code point in place of every character that cannot
    be seen, emoji and scripts included: line ends, controls, marks of direction, odd blanks, blanks after blanks.
    """
    spelled = _UNSEEN.sub(lambda match: code_point(match.group()), str(text))
    return "".join(character if character.isprintable() else code_point(character) for character in spelled)


def replace_hidden(text: str, replacement: Callable[[str], str]) -> str:
    """Return the text with another text in place of each invisible character that changes nothing where it is. The
    joiners and selectors of emoji and of scripts that need them stay.
    """

    def replace(match: re.Match[str]) -> str:
        character = match.group()
        return character if match["flag"] or is_drawn(text, match.start()) else replacement(character)

    return _FLAG_OR_INVISIBLE.sub(replace, text)


def is_drawn(text: str, index: int) -> bool:
    """Return True if the invisible character at the index, outside of a flag, changes how its neighbours are drawn."""
    character, before, after = text[index], text[max(index - 1, 0) : index], text[index + 1 : index + 2]
    if character in _NUMBER_SIGNS:
        return after.isdigit() or _is_letter(after)
    if character in _JOINERS:
        letters = _is_letter(before) and (_is_letter(after) or _JOINING.match(before) is not None)
        return letters or (character == _ZWJ and _joins_pictures(text, index))
    if character == _SPACE:
        return bool(_WITHOUT_BLANKS.match(before) and _WITHOUT_BLANKS.match(after))
    if character in _MONGOLIAN:
        return "\u1820" <= before <= "\u18aa"
    return _selects(character, before, after)


def _selects(character: str, before: str, after: str) -> bool:
    """Return True for a variation selector after a character that has variants."""
    if character in "\ufe0e\ufe0f":
        return bool(_PICTURE.match(before)) or (before in _KEYS and after == _KEYCAP)
    if "\ufe00" <= character <= "\ufe02":
        is_symbol = character == "\ufe00" and bool(before) and unicodedata.category(before) == "Sm"
        return is_symbol or bool(_IDEOGRAPH.match(before))
    return "\U000e0100" <= character <= "\U000e01ef" and bool(_IDEOGRAPH.match(before))


def _joins_pictures(text: str, index: int) -> bool:
    before = text[max(index - 2, 0) : index].removesuffix("\ufe0f")
    return bool(_PICTURE.match(before[-1:]) and _PICTURE.match(text[index + 1 : index + 2]))


def _is_letter(character: str) -> bool:
    return bool(character) and unicodedata.category(character) in ("Lo", "Mn", "Mc") and not INVISIBLE.match(character)
