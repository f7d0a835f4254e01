"""The words of one request. Text that was used for one argument is blanked, so that no word is used twice."""

from __future__ import annotations

import re
from collections.abc import Set
from datetime import date, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from bot.domain.tokenizer import UNSPACED, Word, split_identifier, words
from bot.llm.demo.vocabulary import DAY, RELATED, TIMES, VERBS, days_until

SEPARATORS = re.compile(r"(?i)\s*(?:,\s*and\b|[,;&\n\u3001\uff0c]|\band\b|\bor\b)\s*")
_QUOTED = re.compile(
    r'"([^"\n]{1,2000})"|`([^`\n]{1,2000})`|\u201c([^\u201c\u201d\n]{1,2000})\u201d|\u300c([^\u300c\u300d\n]{1,2000})\u300d'
    r"|(?<!\w)'([^'\n]{1,2000})'(?!\w)|(?<!\w)\u2018([^\u2018\u2019\n]{1,2000})\u2019(?!\w)"
)
_COLON = re.compile(r"(?<!\d):(?!//)|:(?=\s)|\uff1a|\s[-\u2013\u2014]\s")
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_PLACE_PREPOSITIONS = {"in", "at", "near", "around", "for", "of", "from", "to"}
_PREPOSITIONS = _PLACE_PREPOSITIONS | {"on", "with", "into", "by", "about", "over", "during", "until", "since"}
_EAST_ASIAN_WORDS = sorted((word for word in {**VERBS, **RELATED} if not word.isascii()), key=len, reverse=True)
_EAST_ASIAN_KNOWN = re.compile("|".join(map(re.escape, _EAST_ASIAN_WORDS)))
_EAST_ASIAN_OBJECT = re.compile(
    rf"^(?:[{UNSPACED}]{{1,12}}?(?:の中から|から|に))?(.+?)、?(?:を(?!.+と(?:メモ|覚え|書|記録))|って|という|と(?=メモ|覚え|書|記録))"
)
_EAST_ASIAN_IDLE = re.compile(rf"{_EAST_ASIAN_KNOWN.pattern}|[\u3040-\u309f]+")
_LINK = re.compile(r"(?i)\s*(?:,\s*and|,|&|\band|\bor|\u3001|と)\s*(?:(?:in|for|at)\s+)?(?:the\s+)?")
_CUT = re.compile(
    r"(?P<strong>\s*(?:;|\n+|,?\s+and\s+then\s+|,\s*then\s+|,?\s+and\s+also\s+)\s*)"
    r"|(?:[.!?,]\s+|[\u3001\u3002]|,?\s+(?=and\b|then\b))(?:(?:and|also|then|please)\b,?\s*){0,3}",
    re.IGNORECASE,
)
_OPENERS = {"is", "are", "will", "do", "does", "can", "could", "please"}
_MOST_WORDS = 300
"""Words that are searched for a preposition."""


def request_terms(text: str) -> list[str]:
    """Return the terms of a text or an identifier in order, stop words included. Text in an unspaced script gives its
    known words, the English for them, and pairs of characters that do not begin with hiragana (endings and particles).
    """
    return [term for word in words(split_identifier(text)) for term in _terms(word)]


def content_terms(text: str) -> list[str]:
    """Return the terms of a text in order, without stop words."""
    return [term for word in words(text) if not word.is_stop_word for term in _terms(word)]


def _terms(word: Word) -> list[str]:
    if not word.is_unspaced:
        return [word.stem]
    pairs = [term for term in word.terms if len(term) > 1 and not "\u3040" <= term[0] <= "\u309f"]
    known = _EAST_ASIAN_KNOWN.findall(word.text)
    return list(dict.fromkeys([*known, *(term for word in known for term in RELATED.get(word, ())), *pairs]))


def plain_name(name: str) -> str:
    """Return an identifier as words for people: `list_openInvoices` becomes `list open invoices`."""
    return " ".join(word.text for word in words(split_identifier(name))).lower()


@lru_cache(maxsize=1000)
def is_time(word: str) -> bool:
    """Return True for a word in TIMES, also with a typing error."""
    return word in TIMES or (len(word) > 5 and bool(get_close_matches(word, TIMES, 1, 0.85)))


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match.group())


class Request:
    """One request, or one answer to a question, while its words are used up. `claimed` are the stems of the tool's own
    names, which are not arguments. All of an answer may be an argument.
    """

    def __init__(self, text: str, claimed: Set[str] = frozenset(), *, answer: bool = False) -> None:
        self.text = self.left = text
        self.is_answer = answer
        self._claimed = claimed
        colon = None if answer else _COLON.search(_QUOTED.sub(lambda match: "x" * len(match.group()), text))
        self._head_end = colon.start() if colon else len(text)
        self._payload_start = 0 if answer else colon.end() if colon else len(text)

    @property
    def head(self) -> str:
        """The text before the colon, or all of it, without quoted and used text."""
        return _QUOTED.sub(_blanks, self.left[: self._head_end])

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the first match in the remaining text and use it up."""
        return self._use(pattern.search(self.left))

    def _use(self, match: re.Match[str] | None) -> re.Match[str] | None:
        if match:
            self.blank(*match.span())
        return match

    def blank(self, start: int, end: int) -> str:
        """Use up a range of the text, and return what stood there."""
        text = self.left[start:end]
        self.left = self.left[:start] + " " * (end - start) + self.left[end:]
        return text

    def quoted(self) -> str:
        """Return the next text in quotes; empty if there is none."""
        match = self.take(_QUOTED)
        return next(filter(None, match.groups()), "").strip() if match else ""

    def payload(self) -> str:
        """Return the text after the colon; empty if there is none."""
        payload = self.blank(self._payload_start, len(self.text))
        if payload != self.text[self._payload_start :]:
            payload = re.sub(r" {2,}", " ", payload)
        payload = payload.strip(" \t\r\n,;")
        quotation = _QUOTED.fullmatch(payload)
        return next(filter(None, quotation.groups())) if quotation else payload

    def day(self, today: date) -> tuple[str, date, date] | None:
        """Return the next day that is named: its word, its date and, for a weekend, the last date. A weekday is the
        next one to come.
        """
        try:
            if match := self.take(_ISO_DATE):
                day = date(*map(int, match.groups()))
                return match.group(), day, day
            if match := self.take(DAY):
                name = (match[1] or match[2]).lower()
                first, last = days_until(name, today.weekday())
                return name, today + timedelta(days=first), today + timedelta(days=last)
        except (ValueError, OverflowError):
            pass
        return None

    def places(self, *, sure: bool) -> list[str]:
        """Return the places that are named, several if they are listed: `in Tokyo and in Osaka`. Words
        without a capital or a preposition before them are not `sure` to be one.
        """
        head = self.head
        runs: list[list[Word]] = []
        ranks: list[int] = []
        before = ""
        masked = _EAST_ASIAN_IDLE.sub(_blanks, DAY.sub(_blanks, head))
        for word in islice(words(masked), _MOST_WORDS):
            if not (self._is_known(word) or word.base in _PREPOSITIONS or word.text[0].isdigit()):
                if runs and re.fullmatch(r"[ '-]*", head[runs[-1][-1].end : word.start]):
                    runs[-1].append(word)
                else:
                    runs.append([word])
                    is_name = word.is_unspaced or word.text[:1].isupper()
                    ranks.append(0 if is_name else 1 if before in _PLACE_PREPOSITIONS else 2)
            before = before if word.base == "the" else word.base
        best = min(ranks, default=2 if not sure else 1)
        if best not in ranks or (sure and best == 2):
            return []
        first = last = ranks.index(best)
        while last + 1 < len(runs) and _LINK.fullmatch(head[runs[last][-1].end : runs[last + 1][0].start]):
            last += 1
        return list(dict.fromkeys(self.blank(run[0].start, run[-1].end) for run in runs[first : last + 1]))[:4]

    def rest(self, *, verbatim: bool = False) -> str:
        """Return the rest of the head, with its verb, stop words and the tool's own words cut off at both ends.
        `verbatim` text keeps an article before it.
        """
        head = self.head
        if self._payload_start == len(self.text) and (match := _EAST_ASIAN_OBJECT.match(head.strip())):
            return match[1]
        left = list(words(head))
        has_verb = False
        first, last = 0, len(left)
        while first < last and (self._is_idle(left[first]) or (not has_verb and left[first].stem in VERBS)):
            has_verb = has_verb or (left[first].stem in VERBS and not left[first].is_stop_word)
            first += 1
        while last > first and self._is_idle(left[last - 1]):
            last -= 1
        if first == last:
            return ""
        if verbatim and first and left[first - 1].base in ("a", "an", "the", "my", "our", "your"):
            first -= 1
        return re.sub(r"\s{2,}", " ", self.blank(left[first].start, left[last - 1].end))

    def _is_idle(self, word: Word) -> bool:
        return word.is_stop_word or word.stem in self._claimed

    def _is_known(self, word: Word) -> bool:
        return self._is_idle(word) or word.stem in VERBS or is_time(word.base)


def split_clauses(text: str) -> list[str]:
    """Return the parts of a text that may be requests of their own: it is cut at semicolons, lines and `and then`, and
    before the first colon wherever a verb follows a comma, a full stop or an `and`.
    """
    head = len(Request(text).head)
    cuts = [match for match in _CUT.finditer(text) if match["strong"] or (match.end() <= head and _opens(text, match))]
    starts, ends = [0, *(match.end() for match in cuts)], [*(match.start() for match in cuts), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True) if text[start:end].strip()]


def _opens(text: str, cut: re.Match[str]) -> bool:
    word = next(words(text[cut.end() : cut.end() + 40]), None)
    if word is None:
        return False
    return word.base in _OPENERS or not VERBS.keys().isdisjoint(_terms(word))
