"""Search index of tools: BM25 over their names and descriptions.

The formula is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with
weights for the fields. It is written out here because the packages for it need NumPy. Two additions: words count by
their stems, and synonyms count less.
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.domain.tokenizer import stem, terms
from bot.domain.tools import Tool, ToolSet

MOST_HITS = 5
_K1, _B = 1.2, 0.75
_NAME, _TITLE, _TEXT, _OF_SERVER = 3.0, 2.0, 1.0, 0.5
_SYNONYM_WEIGHT = 0.6
_LONGEST_TEXT = 2_000
"""Indexed characters of each text. Longer texts add nothing, and a server may send megabytes."""
_MOST_TERMS = 40
_MAX_INDEXES = 8
_SYNONYM_GROUPS = """
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
"""Groups of synonyms, one a line. A word may be in several. General language only, without tools or servers."""


def _synonyms() -> dict[str, tuple[str, ...]]:
    match: dict[str, dict[str, None]] = {}
    for line in _SYNONYM_GROUPS.splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            match.setdefault(word, {}).update((other, None) for other in group if other != word)
    return {word: tuple(others) for word, others in match.items()}


SYNONYMS = _synonyms()
"""Synonyms by stem."""


class ToolIndex:
    """Search index of a set of tools. `about` describes their servers, by name."""

    def __init__(self, tools: Iterable[Tool], about: Mapping[str, str]) -> None:
        self._tools = sorted(tools, key=lambda tool: tool.name)
        of_servers = {server: _count(Counter(), text, _OF_SERVER) for server, text in about.items()}
        documents = [_tool_words(tool, of_servers.get(tool.server, {})) for tool in self._tools]
        lengths = [sum(words.values()) for words in documents]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._postings: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for n, words in enumerate(documents):
            length_norm = _K1 * (1 - _B + _B * lengths[n] / (average or 1.0))
            for term, weight in words.items():
                self._postings[term][n] = weight * (_K1 + 1) / (weight + length_norm)

    def search(self, query: str, most: int = MOST_HITS) -> tuple[Tool, ...]:
        """Return the matching tools, best first, ties by name. Empty if no word matches."""
        scores: defaultdict[int, float] = defaultdict(float)
        for term in dict.fromkeys(list(terms(query))[:_MOST_TERMS]):
            for n, score in self._scores(term).items():
                scores[n] += score
        ranked = sorted(scores, key=lambda n: (-round(scores[n], 9), n))
        return tuple(self._tools[n] for n in ranked[:most])

    def _scores(self, term: str) -> dict[int, float]:
        """Return the scores of one query word, by tool. Several spellings in one tool count once."""
        exact = self._rarity(term)
        match = {n: exact * share for n, share in self._postings.get(term, {}).items()}
        for other in SYNONYMS.get(term, ()):
            # A rare synonym counts much, but no more than the word itself.
            rarity = _SYNONYM_WEIGHT * (
                min(exact, self._rarity(other)) if term in self._postings else self._rarity(other)
            )
            for n, share in self._postings.get(other, {}).items():
                match[n] = max(match.get(n, 0.0), rarity * share)
        return match

    def _rarity(self, term: str) -> float:
        count = len(self._postings.get(term, ()))
        return math.log(1 + (len(self._tools) - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True, eq=False)
class _Indexed:
    """An index with its tools and server descriptions."""

    tools: tuple[Tool, ...]
    about: Mapping[str, str]
    index: ToolIndex

    def is_of(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> bool:
        """Return True if it is the index of these very objects: a fast test."""
        same = len(tools) == len(self.tools) and all(map(operator.is_, tools, self.tools))
        return same and about == self.about

    def equals(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> bool:
        """Return True if it is the index of equal tools, listed again by their servers."""
        return about == self.about and tools == self.tools


class ToolIndexes:
    """Cache of the last indexes. Subsequent searches in a workspace mostly have the same tools."""

    def __init__(self) -> None:
        self._indexes: list[_Indexed] = []
        self._lock = asyncio.Lock()

    async def of(self, offered: ToolSet) -> ToolIndex:
        """Return the index of these tools. Comparison and indexing run in a thread because thousands of tools take
        long.
        """
        tools = offered.tools
        about = {guide.server: guide.description for guide in offered.guidance if guide.description}
        if (cached := self._cached(tools, about)) is not None:
            return cached
        async with self._lock:  # one at a time, and of equal tools only one
            if (cached := self._cached(tools, about)) is not None:
                return cached
            match = await asyncio.to_thread(_build, tools, about, tuple(self._indexes))
            self._indexes = [match, *(each for each in self._indexes if each.index is not match.index)][:_MAX_INDEXES]
            return match.index

    def _cached(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> ToolIndex | None:
        for n, each in enumerate(self._indexes):
            if each.is_of(tools, about):
                self._indexes.insert(0, self._indexes.pop(n))
                return each.index
        return None


def _build(tools: tuple[Tool, ...], about: Mapping[str, str], indexes: Iterable[_Indexed]) -> _Indexed:
    """Return the index of equal tools, or build a new one."""
    equal = next((each.index for each in indexes if each.equals(tools, about)), None)
    return _Indexed(tools, about, equal or ToolIndex(tools, about))


def _tool_words(tool: Tool, about: Mapping[str, float]) -> Counter[str]:
    """Count the words of a tool, weighted by field. `about` holds those of its server."""
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
