"""A parsed request: quoted text, the text after the colon, numbers, dates and places, and the remaining words.

Text that was used for one argument is blanked, so that no word is used twice. The rules are those of general language.
"""

from __future__ import annotations

import re
from collections.abc import Set
from datetime import date, timedelta
from itertools import islice

from bot.llm.demo.tokenizer import TIMES, UNSPACED, VERBS, Word, listed, terms, words

_QUOTED = re.compile(
    r'"([^"\n]{1,2000})"|`([^`\n]{1,2000})`|\u201c([^\u201c\u201d\n]{1,2000})\u201d'
    r"|\u00ab([^\u00ab\u00bb\n]{1,2000})\u00bb|\u300c([^\u300c\u300d\n]{1,2000})\u300d"
    r"|(?<!\w)'([^'\n]{1,2000})'(?!\w)|(?<!\w)\u2018([^\u2018\u2019\n]{1,2000})\u2019(?!\w)"
)
_COLON = re.compile(r"(?<!\d):(?!//)|:(?=\s)|\uff1a|\s[-\u2013\u2014]\s")
_NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d{1,3}(?:,\d{3})+(?!\d)|(?<![\w.,-])[-+]?\d{1,15}(?:\.\d{1,6})?(?![\d.]\d)")
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_URL = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]")
_IDENTIFIER = re.compile(r"#?((?<![\w-])(?=[\w-]{0,40}\d)[\w-]{1,64})(?!\w)")
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_DAYS = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1, "今日": 0, "明日": 1, "昨日": -1}
_DAY = re.compile(rf"(?<!\w)(?:on\s+)?({'|'.join([*_DAYS, *_WEEKDAYS])})(?!\w)|(今日|明日|昨日)", re.IGNORECASE)
_NUMERALS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
_PREPOSITIONS = listed("""in at for near around of from to on with into by about over during until since""")
_SEPARATORS = re.compile(r"\s*(?:,|;|&|\u3001|\uff0c|\band\b|\bor\b)\s*", re.IGNORECASE)
_MANY = 300
"""Words that are looked through for a preposition."""
_EDGES = " \t\r\n.,;!?\u3002\u3001\uff01\uff1f"
_EAST_ASIAN_OBJECT = re.compile(r"^(.+?)(?:を|って|という)")


class ParsedRequest:
    """One request, or one answer to a question, while its words are used up.

    `claimed` are the stems of the tool's own names, which are not arguments.
    """

    def __init__(self, text: str, claimed: Set[str] = frozenset(), *, answer: bool = False) -> None:
        self.text = text
        self.left = text
        self._claimed = claimed
        mask = _QUOTED.sub(lambda match: "\0" * len(match.group()), text)
        colon = None if answer else _COLON.search(mask)
        self._head_end = 0 if answer else colon.start() if colon else len(text)
        self._payload_start = 0 if answer else colon.end() if colon else len(text)

    @property
    def head(self) -> str:
        """Return the text before the colon, or all of it, without quoted and used text."""
        return _QUOTED.sub(lambda match: " " * len(match.group()), self.left[: self._head_end])

    def blank(self, start: int, end: int) -> None:
        """Mark a stretch as used."""
        self.left = self.left[:start] + " " * (end - start) + self.left[end:]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the first match in the remaining text and use it up."""
        if match := pattern.search(self.left):
            self.blank(*match.span())
        return match

    def quoted(self) -> str:
        """The next text in quotes, empty if there is none."""
        match = self.take(_QUOTED)
        return next((group for group in match.groups() if group), "").strip() if match else ""

    def payload(self) -> str:
        """Return the text after the colon; empty if there is none."""
        found = self.left[self._payload_start :]
        if found != self.text[self._payload_start :]:
            found = re.sub(r" {2,}", " ", found)
        self.blank(self._payload_start, len(self.text))
        return found.strip(" \t\r\n,;")

    def answered(self) -> str:
        """All of it, if it is an answer to a question; empty if it is a request."""
        return self.payload() if self._head_end == 0 == self._payload_start else ""

    def number(self) -> float | int | None:
        """The next number, in digits or as a small numeral."""
        masked = _ISO_DATE.sub(lambda match: "x" * len(match.group()), self.left)
        if match := _NUMBER.search(masked):
            self.blank(*match.span())
            digits = match.group().replace(",", "")
            return float(digits) if "." in digits else int(digits)
        for word in words(self.head):
            if word.text.lower() in _NUMERALS:
                self.blank(word.start, word.end)
                return _NUMERALS[word.text.lower()]
        return None

    def day(self, today: date) -> tuple[str, date] | None:
        """The next day that is named: as it stands in the text, and as a date. A weekday is the next one to come."""
        if match := self.take(_ISO_DATE):
            try:
                return match.group(), date(*map(int, match.groups()))
            except ValueError:
                return None
        if not (match := self.take(_DAY)):
            return None
        name = (match.group(1) or match.group(2)).lower()
        ahead = _DAYS[name] if name in _DAYS else (_WEEKDAYS.index(name) - today.weekday() - 1) % 7 + 1
        try:
            return name, today + timedelta(days=ahead)
        except OverflowError:
            return None

    def email(self) -> str:
        """The next e-mail address."""
        match = self.take(_EMAIL)
        return match.group() if match else ""

    def url(self) -> str:
        """The next web address."""
        match = self.take(_URL)
        return match.group() if match else ""

    def identifier(self) -> str:
        """The next word with a digit in it: `3`, `#3`, `INV-2024-7`."""
        match = self.take(_IDENTIFIER)
        return match.group(1) if match else ""

    def after(self, prepositions: Set[str]) -> str:
        """Return the text after one of these prepositions, up to the next preposition, time word or mark."""
        found = list(islice(words(self.head), _MANY))
        for at, word in enumerate(found[:-1]):
            if word.text.lower() in prepositions:
                chunk = self._chunk(found[at + 1 :])
                if chunk and not all(self._ours(each) for each in chunk):
                    start, end = chunk[0].start, chunk[-1].end
                    value = self.left[start:end]
                    self.blank(word.start, end)
                    return value
        return ""

    def places(self) -> list[str]:
        """The places that are named, several if they are listed: `in Tokyo and in Osaka`."""
        chunk = self._listed_places() or self._proper_noun() or self._east_asian_noun()
        pieces = [re.sub(r"^(?:in|at|for|near|the)\s+", "", part) for part in _SEPARATORS.split(chunk) if part]
        if len(pieces) > 1 and all(piece[:1].upper() == piece[:1] for piece in pieces):
            return list(dict.fromkeys(pieces))[:4]
        return [re.sub(r"^the\s+", "", chunk)] if chunk else []

    def rest(self) -> str:
        """Return the rest of the head, with its verb, stop words and the tool's own words cut off at both ends."""
        head = self.head
        if not self._payload_start < len(self.text) and (match := _EAST_ASIAN_OBJECT.match(head.strip())):
            return re.sub(rf"^[{UNSPACED}]{{1,12}}に(?=.)", "", match.group(1))
        found = list(words(head))
        verb = False
        while found and (found[0].is_stop_word or self._claims(found[0]) or (not verb and found[0].stem in VERBS)):
            verb = verb or (found[0].stem in VERBS and not found[0].is_stop_word)
            found.pop(0)
        while found and (found[-1].is_stop_word or self._claims(found[-1])):
            found.pop()
        if not found:
            return ""
        start, end = found[0].start, found[-1].end
        self.blank(start, end)
        return re.sub(r"\s{2,}", " ", head[start:end]).strip(_EDGES)

    def _claims(self, word: Word) -> bool:
        return word.stem in self._claimed or (len(word.text) <= 3 and not self._claimed.isdisjoint(terms(word.text)))

    def _ours(self, word: Word) -> bool:
        return word.is_stop_word or self._claims(word) or word.stem in VERBS or word.text.lower() in TIMES

    def _chunk(self, found: list[Word]) -> list[Word]:
        chunk: list[Word] = []
        for word in found:
            gap = self.left[chunk[-1].end : word.start] if chunk else ""
            low = word.text.lower()
            if low in _PREPOSITIONS or (low in TIMES and chunk) or re.search(r"[?!;:,.]|\s{3,}", gap):
                break
            if low in TIMES:
                return []
            chunk.append(word)
        return chunk

    def _listed_places(self) -> str:
        head = self.head
        name = rf"(?:the\s+)?(?:[^\W\d_a-z][\w'\u2019-]*(?:\s+[^\W\d_a-z][\w'\u2019-]*){{0,3}}|[{UNSPACED}]+)"
        link = r"\s*(?:,\s*and|,|&|\band|\bor)\s*(?:in\s+|for\s+|at\s+)?"
        listed = re.search(rf"\b(?:in|at|for|near|around|of|from)\s+({name}(?:{link}{name}){{0,3}})", head)
        if listed:
            self.blank(*listed.span())
            return listed.group(1)
        return self.after({"in", "at", "near", "around", "for", "of", "from", "to"})

    def _proper_noun(self) -> str:
        run: list[Word] = []
        for word in words(self.head):
            if word.text[:1].isupper() and not self._ours(word):
                run.append(word)
            elif run:
                break
        if not run:
            return ""
        self.blank(run[0].start, run[-1].end)
        return self.text[run[0].start : run[-1].end]

    def _east_asian_noun(self) -> str:
        for match in re.finditer(r"[\u30a0-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}", self.head):
            known = any(term in self._claimed or term in VERBS or term in _DAYS for term in terms(match.group()))
            if not known:
                self.blank(*match.span())
                return match.group()
        return ""
