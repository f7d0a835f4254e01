"""Words, sentences and days as the demo model understands them, with the lists of `phrases.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from datetime import date, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from itertools import islice

from bot.domain.lazy_pattern import lazy_pattern
from bot.domain.vocabulary import TRANSLATED, UNSPACED, Word, split_identifier, stem, translate, words

PHRASES = tomllib.loads((files(__package__) / "phrases.toml").read_text(encoding="utf-8"))


def stems(text: str) -> frozenset[str]:
    """Return the stems of a list of words."""
    return frozenset(map(stem, text.split()))


def pattern(name: str) -> re.Pattern[str]:
    """Return one of the patterns of `phrases.toml`."""
    return lazy_pattern(PHRASES["patterns"][name], re.IGNORECASE)


_ACTIONS = {action: stems(verbs) for action, verbs in PHRASES["actions"].items()}
VERBS = {
    verb: frozenset(action for action, verbs in _ACTIONS.items() if verb in verbs)
    for verb in frozenset[str]().union(*_ACTIONS.values())
}
"""Stem of a verb to the actions that it asks for."""
READING = frozenset({"list", "search", "get", "convert", "compute"})
"""Actions that change nothing."""
VAGUE = stems(PHRASES["vague"])
RELATED = {word: stems(related) for listed, related in PHRASES["related"].items() for word in stems(listed)}
"""Stem of an everyday word to the stems of words by which tools about its subject are described."""
_IDLE, _POINTERS = frozenset(PHRASES["idle"].split()), frozenset(PHRASES["pointers"].split())
_TIMES = frozenset(f"{PHRASES['times']} {' '.join(PHRASES['days'])}".split())
_TIME_STEMS = frozenset(map(stem, _TIMES))
_PLACE_PREPOSITIONS = frozenset(PHRASES["place_prepositions"].split())
_PREPOSITIONS = _PLACE_PREPOSITIONS | frozenset(PHRASES["prepositions"].split())

HOW_TO, QUESTION, PROHIBITION = map(pattern, ("how_to", "question", "prohibition"))
ASKS, PERSONAL, WANTS, ORDERS = map(pattern, ("asks", "personal", "wants", "orders"))
_CUT = pattern("cut")
_FOLLOWS, _POLITE = PHRASES["patterns"]["follows"], PHRASES["patterns"]["polite"]
LEAD = lazy_pattern(rf"(?i)^\W*(?:(?:{_FOLLOWS}|{_POLITE})[\s,:!.、]*)+")
"""Words that only lead into a request."""
FOLLOWS = lazy_pattern(rf"(?i)^\W*(?:{_POLITE}[\s,:!.]*)*(?:{_FOLLOWS})")
"""Words that lead from one request to the next."""
_REWRITES = [(lazy_pattern(rewrite["pattern"], re.IGNORECASE), rewrite["plain"]) for rewrite in PHRASES["rewrites"]]


def _any_of(listed: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(listed, key=lambda word: (-len(word), word))))


_UNSPACED = {word for word in (*RELATED, *TRANSLATED) if re.match(f"[{UNSPACED}]", word)}
_RELATED_UNSPACED = lazy_pattern(_any_of(_UNSPACED & RELATED.keys()))
_KNOWN = _any_of(word for word in _UNSPACED if len(word) > 1 or word in RELATED)


# -------------------- words


def terms(text: str, *, content: bool = False) -> list[str]:
    """Return the terms of a text or an identifier in order: stems; of unspaced scripts, the English of known words and
    pairs of characters. With `content`, stop words are left out.
    """
    return [
        term for word in words(split_identifier(text)) if not (content and word.is_stop_word) for term in _terms(word)
    ]


def _terms(word: Word) -> list[str]:
    if not word.is_unspaced:
        return [word.stem]
    related = [term for known in _RELATED_UNSPACED.findall(word.text) for term in sorted(RELATED[known])]
    pairs = [term for term in word.terms if len(term) > 1 and not "\u3040" <= term[0] <= "\u309f"]
    return list(dict.fromkeys([*translate(word), *related, *pairs]))


def plain_name(name: str) -> str:
    """Return an identifier as words for people: `list_openInvoices` becomes `list open invoices`."""
    return " ".join(word.text for word in words(split_identifier(name))).lower()


@lru_cache(maxsize=1000)
def is_time(word: str) -> bool:
    """Return True for a word of time, also with a typing error."""
    return word in _TIMES or word in _TIME_STEMS or (len(word) > 5 and bool(get_close_matches(word, _TIMES, 1, 0.85)))


def rewrite(wish: str) -> str:
    """Return a wish without the words that lead into it, in plainer words."""
    wish = LEAD.sub("", wish, count=1)
    for phrase, plain in _REWRITES:
        wish = phrase.sub(plain, wish, count=1)
    return wish


def in_known_words(text: str, known: frozenset[str], most: int) -> str:
    """Return a text with typing errors and words of other languages in its first words replaced by known words. Names,
    times and words that are known stay.
    """
    for word in reversed(list(words(Request(text).head))[:most]):
        if word.is_stop_word or word.is_unspaced or is_time(word.base) or {word.base, word.stem} & known:
            continue
        english = set(translate(word))
        meant = [other for other in sorted(known) if stem(other) in english] if english else []
        if not meant and len(word.base) > (3 if most == 1 else 4) and not (word.text[:1].isupper() and word.start):
            alike = sorted(other for other in known if len(other) > 3 and other[0] == word.base[0])
            meant = get_close_matches(word.base, alike, 1, 0.75)
        text = text[: word.start] + (meant[0] if meant else word.text) + text[word.end :]
    return text


def split_wishes(text: str, *, boldly: bool) -> list[str]:
    """Return the parts of a text that may be requests of their own: it is cut at semicolons, lines and `and then`, and
    before the first colon wherever a verb follows a comma, a full stop or an `and`; `boldly`, without a verb, too.
    """
    head = len(Request(text).head)
    cuts = [
        cut
        for cut in _CUT.finditer(text)
        if cut["strong"] or (cut.end() <= head and (boldly or _opens(text[cut.end() : cut.end() + 40])))
    ]
    starts, ends = [0, *(cut.end() for cut in cuts)], [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True) if text[start:end].strip()]


def _opens(text: str) -> bool:
    word = next(words(text), None)
    is_verb = word is not None and not VERBS.keys().isdisjoint(_terms(word))
    return is_verb or QUESTION.match(text) is not None


# -------------------- days

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAY = lazy_pattern(
    r"(?i)(?<!\w)(?:(?:on|this|next|over|at|for|the)\s+){0,2}"
    rf"(?:(?P<name>{_any_of((*PHRASES['days'], 'weekend', *_WEEKDAYS))})"
    rf"|(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    r"|(?P<iso>\d{4}-\d{2}-\d{2}))(?!\w)"
    rf"|(?P<ja>{_any_of(PHRASES['days'])}|今?週末|来週(?:の?週末|の?[月火水木金土日](?:曜日?)?|の)?|[月火水木金土日]曜日?)"
    r"|(?P<ja_month>\d{1,2})月(?P<ja_day>\d{1,2})日"
)


def _date(match: re.Match[str], today: date) -> date:
    """Return the last day of a match of DAY. A weekday or a month is the next one to come."""
    if match["iso"]:
        return date.fromisoformat(match["iso"])
    if month := match["month"] or match["ja_month"]:
        number = _MONTHS.index(month.lower()) + 1 if match["month"] else int(month)
        day = date(today.year, number, int(match["day"] or match["ja_day"]))
        return day if day >= today else day.replace(year=today.year + 1)
    name = (match["name"] or match["ja"]).lower()
    if name in PHRASES["days"]:
        return today + timedelta(days=PHRASES["days"][name])
    is_next_week, rest = name.startswith("来週"), name.removeprefix("来週").removeprefix("の")
    is_weekend = rest == "weekend" or rest.endswith("週末")
    weekday = (
        6 if is_weekend else _WEEKDAYS.index(rest) if rest in _WEEKDAYS else "月火水木金土日".find(rest[:1] or "日")
    )
    ahead = weekday - today.weekday()
    return today + timedelta(days=ahead + 7 if is_next_week or ahead < (not is_weekend) else ahead)


# -------------------- a text whose words are used up

_QUOTED, _COLON, _LINK = map(pattern, ("quoted", "colon", "link"))
_UNSPACED_IDLE = lazy_pattern(rf"{_KNOWN}|[\u3040-\u309f]+")
_UNSPACED_TOPIC = lazy_pattern(rf"^(.+?)(?:の|に関する|についての)(?:{_KNOWN})")
_UNSPACED_OBJECT = lazy_pattern(
    rf"^(?:[{UNSPACED}]{{1,12}}?(?:の中から|から|に))?(.+?)、?"
    r"(?:を(?!.+(?:と|って)(?:メモ|覚え|書|記録))|って|という|と(?=メモ|覚え|書|記録))"
)
_MOST_WORDS = 300
"""Words that are searched for places."""


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match.group())


class Request:
    """One request, or one answer to a question, while its words are used up. `claimed` are the stems of the tool's own
    names, which are not arguments. All of an answer may be an argument.
    """

    def __init__(self, text: str, claimed: frozenset[str] = frozenset(), *, answer: bool = False) -> None:
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

    def take(self, wanted: re.Pattern[str]) -> re.Match[str] | None:
        """Return the first match in the remaining text and use it up."""
        if match := wanted.search(self.left):
            self.blank(*match.span())
        return match

    def blank(self, start: int, end: int) -> str:
        """Use up a range of the text, and return it."""
        text = self.left[start:end]
        self.left = self.left[:start] + " " * (end - start) + self.left[end:]
        return text

    def quoted(self) -> str:
        """Return the next text in quotes; empty if there is none."""
        match = self.take(_QUOTED)
        return next(filter(None, match.groups()), "").strip() if match else ""

    def payload(self) -> str:
        """Return the text after the colon; empty if there is none."""
        payload = self.blank(self._payload_start, len(self.text)).strip(" \t\r\n,;")
        quotation = _QUOTED.fullmatch(payload)
        return next(filter(None, quotation.groups())) if quotation else payload

    def spoken(self) -> str:
        """Return quoted text, else the text after the colon, else the rest."""
        return self.quoted() or self.payload() or self.rest()

    def day(self, today: date) -> tuple[str, date] | None:
        """Return the words for the next day that is named, and its date."""
        try:
            return (match["name"] or match.group(), _date(match, today)) if (match := self.take(DAY)) else None
        except (ValueError, OverflowError):  # such as 30 February
            return None

    def places(self, *, sure: bool) -> list[str]:
        """Return the places that are named, several if they are listed: `in Tokyo and in Osaka`. Words
        without a capital or a preposition before them are not `sure` to be one.
        """
        head = self.head
        runs: list[list[Word]] = []
        ranks: list[int] = []  # how likely each run is a place: 0 is the best
        before = ""
        for word in islice(words(_UNSPACED_IDLE.sub(_blanks, DAY.sub(_blanks, head))), _MOST_WORDS):
            is_known = self._is_idle(word) or word.stem in VERBS or is_time(word.base) or word.base in _PREPOSITIONS
            if not (is_known or word.text[0].isdigit()):
                if runs and re.fullmatch(r"[ '-]*", head[runs[-1][-1].end : word.start]):
                    runs[-1].append(word)
                else:
                    runs.append([word])
                    rank = 3 - 2 * word.text[:1].isupper() - (before in _PLACE_PREPOSITIONS)
                    ranks.append(0 if word.is_unspaced else rank)
            before = before if word.base == "the" else word.base
        if not runs or (sure and min(ranks) == 3):
            return []
        first = last = ranks.index(min(ranks))
        while last + 1 < len(runs) and _LINK.fullmatch(head[runs[last][-1].end : runs[last + 1][0].start]):
            last += 1
        return list(dict.fromkeys(self.blank(run[0].start, run[-1].end) for run in runs[first : last + 1]))[:4]

    def rest(self, *, verbatim: bool = False) -> str:
        """Return the rest of the head, with its verb, stop words and the tool's own words cut off at both ends. Of
        `verbatim` text only those are cut that belong to the request.
        """
        head = self.head
        if self._payload_start == len(self.text):
            topic = None if verbatim else _UNSPACED_TOPIC.match(head.strip())
            if match := topic or _UNSPACED_OBJECT.match(head.strip()):
                return match[1]
        left = list(words(head))
        idle = [self._is_idle(word) for word in left]
        first = next((n for n, is_idle in enumerate(idle) if not is_idle), len(left))
        first += first < len(left) and left[first].stem in VERBS
        start = next((n for n in range(first, len(left)) if not idle[n]), len(left))
        end = next((n + 1 for n in reversed(range(len(left))) if not idle[n]), 0)
        if verbatim:
            start = max((n + 1 for n in range(first, start) if left[n].stem in self._claimed), default=first)
            while start < end and left[start].base in _POINTERS:
                start += 1
            is_cut = any(word.stem in self._claimed or word.base in _IDLE for word in left[end:])
            is_used = head.rstrip() != self.text[: self._head_end].rstrip()
            end = end if is_cut or is_used else len(left)
        return re.sub(r"\s{2,}", " ", self.blank(left[start].start, left[end - 1].end)) if start < end else ""

    def _is_idle(self, word: Word) -> bool:
        return word.is_stop_word or word.stem in self._claimed or word.base in _IDLE
