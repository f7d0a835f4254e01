"""Splitting of texts and queries into terms.

SQLite splits at spaces and punctuation. Chinese, Japanese and Korean text has few spaces, so every two neighboring
characters are a term there. Texts and queries are split alike, so that words of two characters are found in any
SQLite with FTS5.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MOST_TERMS = 64
"""Maximum number of different terms of a query."""

LONGEST_QUESTION = 20_000
"""Maximum length of a query in characters; the rest is ignored."""

_UNSPACED = (
    r"\u3005-\u3007\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003134f"
)
_RUN = re.compile(f"[{_UNSPACED}]+")

_COMMON = """
    a about also am an and any are as at be been but by can could d did do does doing for from give had has have
    hello help hey hi how i if in into is it its just know let like ll m may me might mine more must my no not of on or
    our ours please re s shall she should so some such t tell than thank thanks that the their them then there these
    they this those to too up us ve very was we were what when where which who whom whose why will with would yes you
    your yours"""
STOP_WORDS = frozenset(_COMMON.split())
"""English words that are ignored if a query has other ones."""


@dataclass(frozen=True, slots=True)
class Question:
    """Query with `terms`: folded words and pairs of characters, in order, without duplicates.

    With `exactly` all terms are so common that a text must have them side by side.
    """

    terms: tuple[str, ...]
    exactly: bool = False

    @property
    def expression(self) -> str:
        """The query in SQLite's FTS5 syntax. Every term is quoted, so that none is an operator."""
        if self.exactly:
            return _quote(" ".join(self.terms))
        return " OR ".join(_quote(term) + (" *" if _alone(term) else "") for term in self.terms)


def fold(text: str) -> str:
    """Return the text without differences of case, width and accent composition."""
    return unicodedata.normalize("NFKC", text).casefold()


def index_terms(text: str) -> str:
    """Return the text for the index: terms of every script separated by spaces.

    The last character of a run is also a term, so that a search for a pair that begins with it finds it.
    """
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {' '.join((*_pairs(run.group()), run.group()[-1]))} ", fold(text))


def question(text: str) -> Question | None:
    """Return the query for a text; None if the text has no words.

    Stop words are removed. If nothing else is left, all words must match side by side: small talk finds nothing,
    but the title "Who is who" is found.
    """
    runs = list(_runs(fold(text[:LONGEST_QUESTION])))
    if len(text) > LONGEST_QUESTION and len(runs) > 1:
        runs.pop()  # The cut may have split it.
    telling = dict.fromkeys(term for run in runs for term in _significant(run))
    if telling:
        return Question(tuple(itertools.islice(telling, MOST_TERMS)))
    every = tuple(term for run in runs for term in _all_terms(run))[:MOST_TERMS]
    return Question(every, exactly=True) if every else None


def stems(terms: Iterable[str]) -> Sequence[str]:
    """Return the likely common beginnings of each term's forms, to locate terms in a text."""
    return [term if is_unspaced(term) or len(term) < 5 else term[: max(4, len(term) - 3)] for term in terms]


def is_unspaced(term: str) -> bool:
    """Return True for a term of a script without spaces."""
    return _RUN.match(term) is not None


def _runs(text: str) -> Iterator[str]:
    """Yield runs of letters, marks and digits, split at the border of scripts without spaces."""
    for kind, run in itertools.groupby(text, _kind):
        if kind:
            yield "".join(run)


def _kind(character: str) -> str:
    if is_unspaced(character):
        return "unspaced"
    return "spaced" if unicodedata.category(character)[0] in "LMN" else ""


def _all_terms(run: str) -> Sequence[str]:
    """Return all terms of a run in the order of the index."""
    return (_pairs(run) or [run]) if is_unspaced(run) else [run]


def _significant(run: str) -> Sequence[str]:
    """Return a run's terms without stop words and pairs that begin with hiragana, which are endings and particles.
    A single character between hiragana is also a term.
    """
    if not is_unspaced(run):
        return [] if run in STOP_WORDS else [run]
    terms = [pair for pair in _pairs(run) if not _ends_words(pair[0])]
    for before, character, after in zip(" " + run, run, run[1:] + " ", strict=False):
        if not _ends_words(character) and all(
            neighbour == " " or _ends_words(neighbour) for neighbour in (before, after)
        ):
            terms.append(character)
    return terms


def _pairs(run: str) -> list[str]:
    return [first + second for first, second in itertools.pairwise(run)]


def _ends_words(character: str) -> bool:
    return "\u3041" <= character <= "\u309f"


def _alone(term: str) -> bool:
    return len(term) == 1 and is_unspaced(term)


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
