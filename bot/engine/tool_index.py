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
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot.domain.tools import Tool, ToolSet
from bot.engine.tool_index_terms import ALIKE, terms

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
