"""Which of many tools fit a few words: a ranking by BM25 over what their servers say of them.

Called by `tool_search_steps`. The formula is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond" (2009), with weights for the fields. It is written out here since the packages that have it need NumPy
(rank-bm25, which nobody maintains, and bm25s), and some hundred tools do not. Two things are added: words count by
their stems, and another word that means the same counts, too, but for less.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable

from bot.domain.tools import Tool, ToolSet
from bot.engine.tool_search_words import ALIKE, terms

MOST_HITS = 5
_K1, _B = 1.2, 0.75
_NAME, _TITLE, _TEXT, _OF_SERVER = 3.0, 2.0, 1.0, 0.5
_ALIKE_WEIGHT = 0.6
_LONGEST_TEXT = 2_000
"""Characters of a description that count: the others do not tell tools apart."""
_MOST_TERMS = 40
_KEPT = 8


class ToolIndex:
    """The words of some tools. `about` says what their servers are, by name."""

    def __init__(self, tools: Iterable[Tool], about: dict[str, str]) -> None:
        self._tools = sorted(tools, key=lambda tool: tool.name)
        documents = [_words_of(tool, about.get(tool.server, "")) for tool in self._tools]
        lengths = [sum(words.values()) for words in documents]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._found_in: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for n, words in enumerate(documents):
            burden = _K1 * (1 - _B + _B * lengths[n] / (average or 1.0))
            for term, weight in words.items():
                self._found_in[term][n] = weight * (_K1 + 1) / (weight + burden)

    def best(self, query: str, most: int = MOST_HITS) -> tuple[Tool, ...]:
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


class ToolIndexes:
    """The indexes of the last few offers: the tools of a place are the same from one search to the next."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[tuple[Tool, ...], dict[str, str], ToolIndex]] = OrderedDict()
        self._made = 0
        self._lock = asyncio.Lock()

    async def of(self, offered: ToolSet) -> ToolIndex:
        """The index of these tools. It is made in a thread: that of hundreds takes longer than others should wait."""
        about = {each.server: each.description for each in offered.guidance if each.description}
        if (known := self._known(offered.tools, about)) is not None:
            return known
        async with self._lock:  # one at a time, and of equal tools only one
            if (known := self._known(offered.tools, about)) is not None:
                return known
            index = await asyncio.to_thread(ToolIndex, offered.tools, about)
            self._made += 1
            self._kept[self._made] = (offered.tools, about, index)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return index

    def _known(self, offered: tuple[Tool, ...], about: dict[str, str]) -> ToolIndex | None:
        for n, (tools, said, index) in self._kept.items():
            if said == about and tools == offered:
                # The newest of equal tools: the next comparison finds that they are the very same.
                self._kept[n] = (offered, about, index)
                self._kept.move_to_end(n)
                return index
        return None


def _words_of(tool: Tool, about: str) -> Counter[str]:
    """How often each word is said of a tool, by the weight of where it is said."""
    properties = tool.input_schema.get("properties")
    arguments = " ".join(map(str, properties)) if isinstance(properties, dict) else ""
    words: Counter[str] = Counter()
    for text, weight in (
        (tool.original_name, _NAME),
        (tool.title, _TITLE),
        (tool.server, _TEXT),
        (tool.description[:_LONGEST_TEXT], _TEXT),
        (arguments, _TEXT),
        (about, _OF_SERVER),
    ):
        for term in terms(text):
            words[term] += weight  # type: ignore[assignment]
    return words
