"""Words of everyday text and of identifiers, for comparing them: splitting, stems, stop words.

General language only: no tool or server is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts written without spaces, or with particles attached to words: Thai to Korean, as a regex character class."""

_COMMON = """
    a about after again all also am an and any anything are as at be been before but by can can't could d did didn't do
    does doesn't doing don't dont each every for from going had has have hello hey hi how i i'd i'll i'm i've if in into
    is isn't it its just kindly let ll may me might more my need no not now of ok okay on one or our out over please s
    same shall should so some something still t than thank thanks that the their them then there these they they're this
    those to too tool tools up us ve via want was we we're were what when where which who whose will with won't would
    you you're your
"""
STOP_WORDS = frozenset(_COMMON.split())
"""English words that say little about the subject of a text."""

_WORD = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+(?:['\u2019][^\W_{UNSPACED}]+)*")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST_WORD = 40
"""Characters of a word that are compared."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its place in a text. `base` is its lower-case form without a possessive ending."""

    text: str
    base: str
    start: int
    end: int

    @property
    def is_stop_word(self) -> bool:
        """True for a word in STOP_WORDS, such as an article."""
        return self.base in STOP_WORDS

    @property
    def is_unspaced(self) -> bool:
        """True for text in one of the scripts of UNSPACED."""
        return _IS_UNSPACED.match(self.text) is not None

    @property
    def stem(self) -> str:
        """The base without inflection endings, see `stem`."""
        return stem(self.base)

    @property
    def terms(self) -> list[str]:
        """The terms to compare: the stem, or each pair of neighboring characters of an unspaced script."""
        if not self.is_unspaced:
            return [self.stem]
        return [self.text[n : n + 2] for n in range(max(1, len(self.text) - 1))]


def words(text: str) -> Iterator[Word]:
    """Yield the words of a text in order. A run of an unspaced script is one word."""
    for match in _WORD.finditer(text):
        base = match.group().casefold().replace("\u2019", "'").removesuffix("'s")[:_LONGEST_WORD]
        yield Word(match.group(), base, match.start(), match.end())


def split_identifier(name: str) -> str:
    """Return an identifier with a space between its camel-case parts: `getUserByID` becomes `get User By ID`."""
    return _CAMEL.sub(" ", name)


def terms(text: str) -> Iterator[str]:
    """Yield the terms of a text or an identifier in order, without stop words."""
    for word in words(split_identifier(text)):
        if not word.is_stop_word:
            yield from word.terms


def stem(word: str) -> str:
    """Return the word without inflection endings, for comparison only: `policies` and `policy` become equal, and so do
    `scheduling`, `scheduled` and `schedule`, or `deletion` and `delete`.
    """
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ion"):
        root = word.removesuffix(ending)
        if root == word or len(root) < 3 or not _VOWEL.search(root) or word.endswith("eed"):
            continue
        if ending == "ion" and root[-1] not in "ts":
            continue
        word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
        break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
