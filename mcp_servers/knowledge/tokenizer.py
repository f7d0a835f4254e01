"""Words: how a text is written into the index, and what of a question is searched for.

SQLite splits at spaces and punctuation, which is right for most scripts. Chinese, Japanese and Korean are written
without spaces, or with particles glued to the words; there, every two neighbouring characters are a word. The same is
done to texts and to questions, so words of two characters are found as well as long ones, in any SQLite with FTS5.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MOST_TERMS = 64
"""So many different words of a question are searched for."""

LONGEST_QUESTION = 20_000
"""Characters; what comes after them is not looked at."""

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
"""English words that say nothing about what is looked for, once there are others."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched for. `terms` are folded words and pairs of characters, in order, each once.

    `exactly` says that they are all so common that only a text with all of them side by side is meant.
    """

    terms: tuple[str, ...]
    exactly: bool = False

    @property
    def expression(self) -> str:
        """The question in SQLite's query language. Every term is quoted, so nothing in it can be an operator."""
        if self.exactly:
            return _quoted(" ".join(self.terms))
        return " OR ".join(_quoted(term) + (" *" if _alone(term) else "") for term in self.terms)


def folded(text: str) -> str:
    """The text as it is compared: case, width and the composition of accents do not matter."""
    return unicodedata.normalize("NFKC", text).casefold()


def indexed(text: str) -> str:
    """The text as it goes into the index: words with spaces between them, in every script.

    The last character of a run stands alone, too, so that a search for pairs beginning with a character finds it there.
    """
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {' '.join((*_pairs(run.group()), run.group()[-1]))} ", folded(text))


def question(text: str) -> Question | None:
    """What to search for; None if there is no word in the text.

    A question in whole sentences is searched by the words that carry it. Where there are no such words, all of it is
    searched for as it stands, so that small talk finds nothing and a title such as "Who is who" is still found.
    """
    runs = list(_runs(folded(text[:LONGEST_QUESTION])))
    if len(text) > LONGEST_QUESTION and len(runs) > 1:
        runs.pop()  # It may be cut in the middle.
    telling = dict.fromkeys(term for run in runs for term in _telling(run))
    if telling:
        return Question(tuple(itertools.islice(telling, MOST_TERMS)))
    every = tuple(term for run in runs for term in _every(run))[:MOST_TERMS]
    return Question(every, exactly=True) if every else None


def stems(terms: Iterable[str]) -> Sequence[str]:
    """Beginnings that the forms of each term are likely to share: for showing where it stands, not for finding it."""
    return [term if is_unspaced(term) or len(term) < 5 else term[: max(4, len(term) - 3)] for term in terms]


def is_unspaced(term: str) -> bool:
    """Whether a term is written without spaces around it."""
    return _RUN.match(term) is not None


def _runs(text: str) -> Iterator[str]:
    """Runs of letters, marks and digits, split where unspaced script begins or ends."""
    for kind, run in itertools.groupby(text, _kind):
        if kind:
            yield "".join(run)


def _kind(character: str) -> str:
    if is_unspaced(character):
        return "unspaced"
    return "spaced" if unicodedata.category(character)[0] in "LMN" else ""


def _every(run: str) -> Sequence[str]:
    """A run's terms as they follow each other in the index."""
    return (_pairs(run) or [run]) if is_unspaced(run) else [run]


def _telling(run: str) -> Sequence[str]:
    """A run's terms without those that say nothing: stop words, and what begins with hiragana, which is endings and
    particles. A character between hiragana is a word of its own as well, whatever ending it has elsewhere.
    """
    if not is_unspaced(run):
        return [] if run in STOP_WORDS else [run]
    terms = [pair for pair in _pairs(run) if not _ends_words(pair[0])]
    for before, character, after in zip(" " + run, run, run[1:] + " ", strict=False):
        if not _ends_words(character) and all(each == " " or _ends_words(each) for each in (before, after)):
            terms.append(character)
    return terms


def _pairs(run: str) -> list[str]:
    return [one + other for one, other in itertools.pairwise(run)]


def _ends_words(character: str) -> bool:
    return "\u3041" <= character <= "\u309f"


def _alone(term: str) -> bool:
    return len(term) == 1 and is_unspaced(term)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'
