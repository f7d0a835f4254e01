"""The words of a request: verbs, days, numbers, places, quoted text, and the text after a colon.

General language only: no tool or server is known here. Text that was used for one argument is blanked, so that no word
is used twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from datetime import date, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice

from bot.domain.tokenizer import UNSPACED, Word, split_identifier, stem, words


def stems(text: str) -> frozenset[str]:
    """Return the stems of a list of words."""
    return frozenset(map(stem, text.split()))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ACTIONS = {
    "add": """add save jot remember memorise memorize create write record store make put insert append log register
        keep book schedule open remind 追加 保存 登録 作成 覚え""",
    "list": "list show all what which display enumerate see view everything 一覧 表示 見せ",
    "search": "search find look lookup query seek locate where filter about mention contain 検索 探し 探す",
    "delete": "delete remove erase forget drop discard destroy purge clear 削除 消し",
    "get": "get fetch read open retrieve show give tell check see view load what how when 取得 教え",
    "update": "update edit change modify rename set replace correct adjust move 更新 変更",
    "send": "send post email mail message notify publish share 送信 送っ",
    "start": "start run launch begin execute trigger enable activate",
    "stop": "stop end halt disable kill close pause cancel abort",
    "finish": "complete finish done resolve tick",
    "convert": "convert translate transform turn",
    "compute": "calculate compute solve evaluate",
}
"""Actions, and the verbs that ask for them. A verb may ask for several."""
READING = frozenset({"list", "search", "get", "convert", "compute"})
"""Actions that change nothing."""
VERBS = {
    verb: frozenset(action for action, verbs in _ACTIONS.items() if verb in stems(verbs))
    for verb in stems(" ".join(_ACTIONS.values()))
}
"""Stem of a verb to the actions that it asks for."""
VAGUE = stems(
    """make put keep show all what which where when how see view give tell get check open run set change start stop end
    turn look move message close write everything about 教え 表示"""
)
"""Verbs so common that alone they say nothing about which tool is meant."""
_RELATED = {
    "umbrella raincoat rain rainy wet 傘 雨": "rain weather",
    "temperature hot cold warm cool jacket coat sweater 気温 暑い 寒い": "temperature weather",
    "sunny cloudy snow snowy windy storm 天気 날씨 天气 雪": "weather",
    "予報": "forecast", "memo reminder todo メモ ノート 메모 笔记": "note", "予定": "event", "会議": "meeting",
    "課題": "issue", "請求": "invoice", "注文": "order", "顧客": "customer", "照明 電気": "light", "時間 時刻": "time",
    "翻訳": "translate", "写真": "photo", "文書": "document",
}  # fmt: skip
RELATED = {word: stems(related) for listed, related in _RELATED.items() for word in stems(listed)}
"""Stem of an everyday word to the stems of words by which tools about its subject are described."""

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_EAST_ASIAN_WEEKDAYS = "月火水木金土日"
_OFFSETS = {"the day after tomorrow": 2, "today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
_OFFSETS |= {"明後日": 2, "あさって": 2, "今日": 0, "明日": 1, "昨日": -1}
TIMES = _words(
    f"""today tonight tomorrow yesterday now currently weekend week month year morning noon afternoon evening night next
    this last coming later soon please again right then be will {" ".join(_WEEKDAYS)}"""
)
"""Words that end the name of a place: `Tokyo tomorrow`."""
_DAY = re.compile(
    rf"(?<!\w)(?:(?:on|this|next|over|at|for|the)\s+){{0,2}}({'|'.join(_OFFSETS)}|weekend|{'|'.join(_WEEKDAYS)})(?!\w)"
    rf"|(明後日|あさって|今日|明日|昨日|今?週末|[{_EAST_ASIAN_WEEKDAYS}]曜日?)",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r'"([^"\n]{1,2000})"|`([^`\n]{1,2000})`|\u201c([^\u201c\u201d\n]{1,2000})\u201d'
    r"|\u00ab([^\u00ab\u00bb\n]{1,2000})\u00bb|\u300c([^\u300c\u300d\n]{1,2000})\u300d"
    r"|(?<!\w)'([^'\n]{1,2000})'(?!\w)|(?<!\w)\u2018([^\u2018\u2019\n]{1,2000})\u2019(?!\w)"
)
_COLON = re.compile(r"(?<!\d):(?!//)|:(?=\s)|\uff1a|\s[-\u2013\u2014]\s")
_NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d{1,3}(?:,\d{3})+(?!\d)|(?<![\w.,-])[-+]?\d{1,15}(?:\.\d{1,6})?(?![\d.]\d)")
_NUMERALS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}
_ISO_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_PLACE_PREPOSITIONS = _words("in at near around for of from to")
_PREPOSITIONS = _PLACE_PREPOSITIONS | _words("on with into by about over during until since")
_SEPARATORS = re.compile(r"\s*(?:,|;|&|\u3001|\uff0c|\band\b|\bor\b)\s*", re.IGNORECASE)
_NAME = rf"(?:the\s+)?(?:[^\W\d_a-z][\w'\u2019-]*(?:\s+[^\W\d_a-z][\w'\u2019-]*){{0,3}}|[{UNSPACED}]+)"
_LINK = r"\s*(?:,\s*and|,|&|\band|\bor)\s*(?:in\s+|for\s+|at\s+)?"
_NAMES = re.compile(rf"\b(?:in|at|for|near|around|of|from)\s+({_NAME}(?:{_LINK}{_NAME}){{0,3}})")
_EAST_ASIAN_OBJECT = re.compile(r"^(.+?)(?:を|って|という)")
_EAST_ASIAN_NOUN = re.compile(r"[\u30a0-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_EAST_ASIAN_WORDS = sorted((word for word in {**VERBS, **RELATED} if not word.isascii()), key=len, reverse=True)
_EAST_ASIAN_KNOWN = re.compile("|".join(map(re.escape, _EAST_ASIAN_WORDS)))
_EDGES = " \t\r\n.,;!?\u3002\u3001\uff01\uff1f"
_THEN = re.compile(r"\s*(?:;|\n+|,?\s+and\s+then\s+|,\s*then\s+|,?\s+and\s+also\s+)\s*", re.IGNORECASE)
_AND = re.compile(r"(?:[.!?;,]\s+|\n+|,?\s+(?=and\b|then\b))(?:(?:and|also|then|please)\s+){0,3}", re.IGNORECASE)
_OPENERS = _words("is are will do does can could please")
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


def named_day(text: str) -> bool:
    """Return True if the text names a day."""
    return _DAY.search(text) is not None


class Request:
    """One request, or one answer to a question, while its words are used up.

    `claimed` are the stems of the tool's own names, which are not arguments. An answer has no verb and no payload.
    """

    def __init__(self, text: str, claimed: Set[str] = frozenset(), *, answer: bool = False) -> None:
        self.text = self.left = text
        self.is_answer = answer
        self._claimed = claimed
        colon = _COLON.search(_QUOTED.sub(lambda match: "\0" * len(match.group()), text))
        self._head_end = 0 if answer else colon.start() if colon else len(text)
        self._payload_start = 0 if answer else colon.end() if colon else len(text)

    @property
    def head(self) -> str:
        """The text before the colon, or all of it, without quoted and used text."""
        return _QUOTED.sub(lambda match: " " * len(match.group()), self.left[: self._head_end])

    def blank(self, start: int, end: int) -> None:
        """Mark a range as used."""
        self.left = self.left[:start] + " " * (end - start) + self.left[end:]

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the first match in the remaining text and use it up."""
        if match := pattern.search(self.left):
            self.blank(*match.span())
        return match

    def quoted(self) -> str:
        """Return the next text in quotes; empty if there is none."""
        match = self.take(_QUOTED)
        return next(filter(None, match.groups()), "").strip() if match else ""

    def payload(self) -> str:
        """Return the text after the colon; empty if there is none."""
        payload = self.left[self._payload_start :]
        if payload != self.text[self._payload_start :]:
            payload = re.sub(r" {2,}", " ", payload)
        self.blank(self._payload_start, len(self.text))
        return payload.strip(" \t\r\n,;")

    def number(self) -> float | int | None:
        """Return the next number, in digits or as a small numeral."""
        if match := _NUMBER.search(_ISO_DATE.sub(lambda match: "x" * len(match.group()), self.left)):
            self.blank(*match.span())
            digits = match.group().replace(",", "")
            return float(digits) if "." in digits else int(digits)
        for word in words(self.head):
            if word.base in _NUMERALS:
                self.blank(word.start, word.end)
                return _NUMERALS[word.base]
        return None

    def day(self, today: date) -> tuple[str, date, date] | None:
        """Return the next day that is named: its word, its date and, for a weekend, the last date. A weekday is the
        next one to come.
        """
        try:
            if match := self.take(_ISO_DATE):
                day = date(*map(int, match.groups()))
                return match.group(), day, day
            if not (match := self.take(_DAY)):
                return None
            name = (match[1] or match[2]).lower()
            first, last = _offsets(name, today.weekday())
            return name, today + timedelta(days=first), today + timedelta(days=last)
        except (ValueError, OverflowError):
            return None

    def after(self, prepositions: Set[str]) -> str:
        """Return the text after one of these prepositions, up to the next preposition, time word or mark."""
        following = list(islice(words(self.head), _MOST_WORDS))
        for at, word in enumerate(following[:-1]):
            if word.base in prepositions:
                chunk = self._chunk(following[at + 1 :])
                if chunk and not all(map(self._is_known, chunk)):
                    start, end = chunk[0].start, chunk[-1].end
                    value = self.left[start:end]
                    self.blank(word.start, end)
                    return value
        return ""

    def places(self) -> list[str]:
        """Return the places that are named, several if they are listed: `in Tokyo and in Osaka`."""
        if listed := _NAMES.search(self.head):
            self.blank(*listed.span())
        named = listed[1] if listed else self.after(_PLACE_PREPOSITIONS)
        named = re.sub(r"^the\s+", "", named or self._proper_noun() or self._east_asian_noun())
        pieces = [re.sub(r"^(?:in|at|for|near|the)\s+", "", part) for part in _SEPARATORS.split(named) if part]
        if len(pieces) > 1 and all(piece[:1].upper() == piece[:1] for piece in pieces):
            return list(dict.fromkeys(pieces))[:4]
        return [named] if named else []

    def rest(self, *, place: bool = False) -> str:
        """Return the rest of the head, with its verb, stop words and the tool's own words cut off at both ends. A place
        has no time words either.
        """
        head = self.head
        if self._payload_start == len(self.text) and (match := _EAST_ASIAN_OBJECT.match(head.strip())):
            return re.sub(rf"^[{UNSPACED}]{{1,12}}に(?=.)", "", match[1])
        left = list(words(head))

        def is_idle(word: Word) -> bool:
            return word.is_stop_word or self._claims(word) or (place and is_time(word.base))

        has_verb = False
        while left and (is_idle(left[0]) or (not has_verb and left[0].stem in VERBS)):
            word = left.pop(0)
            has_verb = has_verb or (word.stem in VERBS and not word.is_stop_word)
        while left and is_idle(left[-1]):
            left.pop()
        if not left:
            return ""
        start, end = left[0].start, left[-1].end
        self.blank(start, end)
        return re.sub(r"\s{2,}", " ", head[start:end]).strip(_EDGES)

    def _claims(self, word: Word) -> bool:
        return word.stem in self._claimed or (len(word.text) <= 3 and not self._claimed.isdisjoint(_terms(word)))

    def _is_known(self, word: Word) -> bool:
        return word.is_stop_word or self._claims(word) or word.stem in VERBS or is_time(word.base)

    def _chunk(self, following: Sequence[Word]) -> list[Word]:
        chunk: list[Word] = []
        for word in following:
            gap = self.left[chunk[-1].end : word.start] if chunk else ""
            if word.base in _PREPOSITIONS or is_time(word.base) or re.search(r"[?!;:,.]|\s{3,}", gap):
                return chunk
            chunk.append(word)
        return chunk

    def _proper_noun(self) -> str:
        run: list[Word] = []
        for word in words(self.head):
            if word.text[:1].isupper() and not self._is_known(word):
                run.append(word)
            elif run:
                break
        if not run:
            return ""
        self.blank(run[0].start, run[-1].end)
        return self.text[run[0].start : run[-1].end]

    def _east_asian_noun(self) -> str:
        known = re.compile(rf"{_EAST_ASIAN_KNOWN.pattern}|{_DAY.pattern}", re.IGNORECASE)
        masked = known.sub(lambda match: " " * len(match.group()), self.head)
        for match in _EAST_ASIAN_NOUN.finditer(masked):
            if self._claimed.isdisjoint(_terms(next(words(match.group())))):
                self.blank(*match.span())
                return match.group()
        return ""


def _offsets(name: str, weekday: int) -> tuple[int, int]:
    """Return the days from today to the first and to the last day of the name."""
    if name in _OFFSETS:
        return _OFFSETS[name], _OFFSETS[name]
    if name == "weekend" or name.endswith("週末"):
        return max(0, 5 - weekday), 6 - weekday
    at = _WEEKDAYS.index(name) if name in _WEEKDAYS else _EAST_ASIAN_WEEKDAYS.index(name[0])
    ahead = (at - weekday - 1) % 7 + 1
    return ahead, ahead


def split_clauses(text: str, *, at_verbs: bool) -> list[str]:
    """Return the parts of a text that may be requests of their own.

    They are divided at semicolons, lines and `and then`, or (`at_verbs`) wherever a verb follows a comma, a full stop
    or an `and` before the first colon.
    """
    if not at_verbs:
        return [clause for clause in _THEN.split(text) if clause.strip()]
    cuts = [
        match
        for match in _AND.finditer(Request(text).head)
        if (word := next(words(text[match.end() : match.end() + 40]), None))
        and (word.stem in VERBS or word.base in _OPENERS)
    ]
    starts, ends = [0, *(match.end() for match in cuts)], [*(match.start() for match in cuts), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True) if text[start:end].strip()]
