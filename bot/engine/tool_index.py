"""Which of many tools fit a few words: a ranking by BM25 over what their servers say of them.

Called by `search_steps`. The formula is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond" (2009), with weights for the fields. It is written out here since the packages that have it need NumPy
(rank-bm25, which nobody maintains, and bm25s), and some hundred tools do not. Two things are added: words count by
their stems, and another word that means the same counts, too, but for less.
"""

from __future__ import annotations

import asyncio
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bot.domain.tools import Tool, ToolSet

# -------------------- tool index terms
# The words that tools are told apart by: split, cut to their stems, and those that mean much the same.
#
# Called by `tool_index`. Everyday language only: nothing here knows a tool or a server.

_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts written without spaces, or with particles glued to the words: Thai to Korean."""
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST_WORD = 40
_EMPTY = """
    a about after all also am an and any anything are as at be been before but by can could d did do does each every
    for from has have how i if in into is it its just kindly let ll may me might more my need no not now of on one or
    our out over please s same shall should so some something still t than that the their them then there these they
    this those to too tool tools up us ve via want was we were what when where which who whose will with would you
    your
"""
"""Words that say nothing about which tool is meant."""
_ALIKE = """
    create add new make open register record insert draft write log file raise
    delete remove erase drop discard destroy purge clear
    list show enumerate overview display
    get fetch read retrieve show view look open display tell check see
    find search query look locate seek
    update edit change modify revise adjust set alter correct
    send post deliver mail submit
    start run launch trigger begin execute
    stop end halt cancel abort terminate kill
    close finish complete resolve done
    copy duplicate clone
    move transfer relocate
    upload attach put
    download export
    share grant give invite allow
    assign delegate owner hand
    approve accept confirm
    reject decline refuse deny
    restore recover undo revert rollback
    merge combine join
    schedule plan book reserve arrange
    convert translate transform turn
    compute calculate count sum total
    compare diff difference
    subscribe follow watch
    mute silence suppress snooze
    comment reply respond answer remark
    rename title name call
    tag label category mark
    summarize summary digest
    check verify validate test
    issue ticket bug task defect problem
    message mail email letter
    meeting event appointment
    person user member people employee colleague staff
    contact lead person
    team group department
    file document doc attachment
    folder directory
    picture image photo screenshot
    page article
    customer client account company
    invoice bill receipt
    payment charge money pay
    refund reimburse
    order purchase buy
    price cost fare
    product item goods
    stock inventory
    holiday vacation leave absence off
    salary wage payroll pay
    repository repo
    commit change
    release deployment deploy rollout ship
    server machine host instance
    error exception crash failure
    alert alarm warning incident outage
    metric measurement statistic
    chart graph plot diagram
    trip travel journey
    hotel room accommodation
    address place location
    route direction way
    password secret credential
    permission right access role
    deadline due
    chat channel
    link url
    person people
    version revision history
    free available availability
    delivery shipment parcel package
    discount coupon voucher
"""
"""A line for each group of words by which the same deed or thing is called. A word may be in several."""


def terms(text: str) -> Iterator[str]:
    """The stems of the words that say something, in order. Scripts without spaces come in pairs of characters."""
    for found in _WORD.findall(_CAMEL.sub(" ", text)):
        if _IS_UNSPACED.match(found):
            yield from (found[n : n + 2] for n in range(max(1, len(found) - 1)))
            continue
        word = found.casefold()[:_LONGEST_WORD]
        if word not in _SAYING_NOTHING:
            yield stem(word)


def stem(word: str) -> str:
    """The word without the endings by which forms of it differ: `policies` and `policy` become equal, and so do
    `scheduling`, `scheduled` and `schedule`, or `deletion` and `delete`. It is for comparing, not for reading.
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


_SAYING_NOTHING = frozenset(_EMPTY.split())


def _alike() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _ALIKE.splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            found.setdefault(word, {}).update((other, None) for other in group if other != word)
    return {word: tuple(others) for word, others in found.items()}


ALIKE = _alike()
"""The stems that may stand for another one."""


MOST_HITS = 5
_K1, _B = 1.2, 0.75
_NAME, _TITLE, _TEXT, _OF_SERVER = 3.0, 2.0, 1.0, 0.5
_ALIKE_WEIGHT = 0.6
_LONGEST_TEXT = 2_000
"""Characters of each text that count: the others do not tell tools apart, and a server may write megabytes."""
_MOST_TERMS = 40
_KEPT = 8


class ToolIndex:
    """The words of some tools. `about` says what their servers are, by name."""

    def __init__(self, tools: Iterable[Tool], about: Mapping[str, str]) -> None:
        self._tools = sorted(tools, key=lambda tool: tool.name)
        of_servers = {server: _count(Counter(), text, _OF_SERVER) for server, text in about.items()}
        documents = [_words_of(tool, of_servers.get(tool.server, {})) for tool in self._tools]
        lengths = [sum(words.values()) for words in documents]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._found_in: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for n, words in enumerate(documents):
            burden = _K1 * (1 - _B + _B * lengths[n] / (average or 1.0))
            for term, weight in words.items():
                self._found_in[term][n] = weight * (_K1 + 1) / (weight + burden)

    def search(self, query: str, most: int = MOST_HITS) -> tuple[Tool, ...]:
        """The tools that fit, the best first; of those that fit alike, the first by name. None where no word does."""
        scores: defaultdict[int, float] = defaultdict(float)
        for term in dict.fromkeys(list(terms(query))[:_MOST_TERMS]):
            for n, score in self._scores(term).items():
                scores[n] += score
        ranked = sorted(scores, key=lambda n: (-round(scores[n], 9), n))
        return tuple(self._tools[n] for n in ranked[:most])

    def _scores(self, term: str) -> dict[int, float]:
        """What one word of a query says: a tool that has it in several spellings is no better for that."""
        exact = self._rarity(term)
        found = {n: exact * share for n, share in self._found_in.get(term, {}).items()}
        for other in ALIKE.get(term, ()):
            # What is rare says much, but no more than the word that was meant.
            rarity = _ALIKE_WEIGHT * (
                min(exact, self._rarity(other)) if term in self._found_in else self._rarity(other)
            )
            for n, share in self._found_in.get(other, {}).items():
                found[n] = max(found.get(n, 0.0), rarity * share)
        return found

    def _rarity(self, term: str) -> float:
        count = len(self._found_in.get(term, ()))
        return math.log(1 + (len(self._tools) - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True, eq=False)
class _Indexed:
    """Some tools, what is said of their servers, and their index."""

    tools: tuple[Tool, ...]
    about: Mapping[str, str]
    index: ToolIndex

    def is_of(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> bool:
        """Whether it is the index of these very tools: seen at once, however many they are."""
        same = len(tools) == len(self.tools) and all(map(operator.is_, tools, self.tools))
        return same and about == self.about

    def equals(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> bool:
        """Whether it is the index of equal tools: their servers may have listed them again."""
        return about == self.about and tools == self.tools


class ToolIndexes:
    """The indexes of the last few offers: the tools of a place are the same from one search to the next."""

    def __init__(self) -> None:
        self._kept: list[_Indexed] = []
        self._lock = asyncio.Lock()

    async def of(self, offered: ToolSet) -> ToolIndex:
        """The index of these tools. It is looked for and made in a thread: to compare thousands of tools that were
        listed anew, and more so to read them, takes longer than others should wait.
        """
        tools = offered.tools
        about = {each.server: each.description for each in offered.guidance if each.description}
        if (known := self._known(tools, about)) is not None:
            return known
        async with self._lock:  # one at a time, and of equal tools only one
            if (known := self._known(tools, about)) is not None:
                return known
            found = await asyncio.to_thread(_indexed, tools, about, tuple(self._kept))
            self._kept = [found, *(each for each in self._kept if each.index is not found.index)][:_KEPT]
            return found.index

    def _known(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> ToolIndex | None:
        for n, each in enumerate(self._kept):
            if each.is_of(tools, about):
                self._kept.insert(0, self._kept.pop(n))
                return each.index
        return None


def _indexed(tools: tuple[Tool, ...], about: Mapping[str, str], kept: Iterable[_Indexed]) -> _Indexed:
    """These tools with the index of equal ones, or with a new one."""
    equal = next((each.index for each in kept if each.equals(tools, about)), None)
    return _Indexed(tools, about, equal or ToolIndex(tools, about))


def _words_of(tool: Tool, about: Mapping[str, float]) -> Counter[str]:
    """How often each word is said of a tool, by the weight of where it is said; `about` says it of its server."""
    properties = tool.input_schema.get("properties")
    arguments = " ".join(map(str, properties)) if isinstance(properties, dict) else ""
    words: Counter[str] = Counter()
    for text, weight in (
        (tool.original_name, _NAME),
        (tool.title, _TITLE),
        (tool.server, _TEXT),
        (tool.description, _TEXT),
        (arguments, _TEXT),
    ):
        _count(words, text, weight)
    words.update(about)
    return words


def _count(words: Counter[str], text: str, weight: float) -> Counter[str]:
    for term in terms(text[:_LONGEST_TEXT]):
        words[term] += weight  # type: ignore[assignment]
    return words
