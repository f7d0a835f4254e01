"""Words of everyday language: splitting, stems, stop words, and verbs that mean the same action.

The planner compares questions and tools by these. General language only: nothing here may know a tool or a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts written without spaces, or with particles glued to the words: Thai to Korean, as a regex character class."""

_WORD = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+(?:['\u2019][^\W_{UNSPACED}]+)*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]")


def listed(text: str) -> frozenset[str]:
    """The words of a list written as a text."""
    return frozenset(text.split())


STOP_WORDS = listed(
    """a about again also am an and any anything are as at be been but by can could d did do does doing dont for from
    give going had has have hello help hey hi how i i'd i'll i'm i've if in into is it it's its just kindly know let
    let's like ll may me might mine more my need no not now of ok okay on one or our ours out over please re s shall she
    should so some something t tell than thank thanks that that's the their them then there these they thing this
    those to too up us ve very want was we were what what's when where which who why will with would yes you your
    yours"""
)

ACTIONS = {
    "add": """add save jot remember memorise memorize create write record store make put insert append log
        register keep book schedule open""",
    "list": "list show all what which display enumerate see view everything",
    "search": "search find look lookup query seek locate where filter",
    "delete": "delete remove forget drop erase discard destroy clear purge",
    "get": "get fetch read open retrieve show give tell check see view load what how when",
    "update": "update edit change modify rename set replace correct adjust move",
    "send": "send post email mail message notify publish share",
    "start": "start run launch begin execute trigger enable activate",
    "stop": "stop end halt disable kill close pause cancel abort",
    "finish": "complete finish done resolve tick",
    "convert": "convert translate transform turn",
    "compute": "calculate compute solve evaluate",
}
"""Actions, and the verbs that ask for them. A verb may ask for several."""

_JAPANESE = {
    "追加": "add", "保存": "add", "登録": "add", "作成": "add", "覚え": "add", "一覧": "list", "表示": "list",
    "検索": "search", "探し": "search", "探す": "search", "削除": "delete", "消し": "delete", "取得": "get",
    "教え": "get", "更新": "update", "変更": "update", "送信": "send", "送っ": "send",
}  # fmt: skip

_EVERYDAY = {
    "天気": "weather", "予報": "forecast", "気温": "temperature", "メモ": "note", "ノー": "note", "予定": "event",
    "会議": "meeting", "課題": "issue", "請求": "invoice", "注文": "order", "顧客": "customer", "照明": "light",
    "電気": "light", "時間": "time", "時刻": "time", "翻訳": "translate", "写真": "photo", "文書": "document",
    "날씨": "weather", "메모": "note", "天气": "weather", "笔记": "note",
}  # fmt: skip
"""Everyday nouns in other languages, for tools that are described in English."""

READING = frozenset({"list", "search", "get", "convert", "compute"})
"""Actions that change nothing."""

_VAGUE = """make put keep show all what which where when how see view give tell get check open run set change start
    stop end turn look move message close write everything 教え 表示"""
"""Verbs so common that alone they say nothing about which tool is meant."""

TIMES = listed(
    """today tonight tomorrow yesterday now currently weekend week month year morning noon afternoon evening night
    next this last coming later soon please again right and also then like be will today's monday tuesday wednesday
    thursday friday saturday sunday"""
)
"""Words that end the name of a place: `Tokyo tomorrow`."""

DAYS = listed("today tonight tomorrow weekend monday tuesday wednesday thursday friday saturday sunday 今日 明日")
"""Words that ask about a day."""


def stem(word: str) -> str:
    """The word without plural, -ing, -ed and a final e: `notes` and `note` become equal, and so do `saving`, `saved`
    and `save`. The result is for comparing, not for reading.
    """
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "'s")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) > 2 and _VOWEL.search(root) and not word.endswith("eed"):
            word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _verbs() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for action, verbs in ACTIONS.items():
        for verb in verbs.split():
            found.setdefault(stem(verb), set()).add(action)
    for pair, action in _JAPANESE.items():
        found.setdefault(pair, set()).add(action)
    return {verb: frozenset(actions) for verb, actions in found.items()}


VERBS = _verbs()
"""Stem of a verb to the actions it asks for."""

VAGUE = frozenset(map(stem, _VAGUE.split()))


@dataclass(frozen=True, slots=True)
class Word:
    """A word where it stands in a text; `stem` is lower-cased."""

    text: str
    stem: str
    start: int
    end: int

    @property
    def is_stop_word(self) -> bool:
        """True for a word in STOP_WORDS, such as an article."""
        return self.text.lower().replace("\u2019", "'") in STOP_WORDS


def words(text: str) -> Iterator[Word]:
    """The words of a text in order. A run of an unspaced script is one word."""
    for match in _WORD.finditer(text):
        plain = match.group().lower().replace("\u2019", "'").removesuffix("'s")
        yield Word(match.group(), stem(plain), match.start(), match.end())


def terms(text: str) -> list[str]:
    """Return the search terms of a text, in order: the stems of its words; for unspaced scripts each pair of
    neighbouring characters, unless the first is hiragana (endings and particles); and the English for some words.
    """
    return [term for word in words(text) for term in _terms(word)]


def content_words(text: str) -> list[str]:
    """The terms of a text without stop words, in order."""
    return [term for word in words(text) if not word.is_stop_word for term in _terms(word)]


def _terms(word: Word) -> list[str]:
    if not re.match(rf"[{UNSPACED}]", word.text):
        return [word.stem]
    pairs = [a + b for a, b in zip(word.text, word.text[1:], strict=False) if not "\u3040" <= a <= "\u309f"]
    return pairs + [stem(_EVERYDAY[pair]) for pair in pairs if pair in _EVERYDAY]


def name_terms(name: str) -> list[str]:
    """The terms of an identifier: `getUserByID`, `get-user`, `srv__get.user`."""
    return terms(_CAMEL.sub(" ", name))


def plain_name(name: str) -> str:
    """An identifier as words for people: `list_openInvoices` becomes `list open invoices`."""
    return " ".join(word.text for word in words(_CAMEL.sub(" ", name))).lower()


def same_stem(one: str, other: str) -> bool:
    """Return True if two different stems probably come from one word, as `translat` and `translation` do."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return shared >= 5 and shared >= 0.6 * max(len(one), len(other))
