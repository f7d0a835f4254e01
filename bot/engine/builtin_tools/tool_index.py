"""Index of the tools that a model searches.

Ranks by BM25 over names, titles, descriptions, arguments and servers: Robertson and Zaragoza, "The Probabilistic
Relevance Framework: BM25 and Beyond" (2009), with weights for the fields. It is written out here because the packages
for it need NumPy. Additions: words count by their stems, synonyms count less, words of other languages count as their
translations, and a word that no tool has counts as the most similar ones that tools have, by three characters each.

With embeddings, their ranking is merged with this one: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion" (2009).
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bot.domain.tools import Tool, ToolSet
from bot.domain.vocabulary import SYNONYMS, fold_accents, split_identifier, translate, words
from bot.ports.models import EmbedTexts

MOST_HITS = 5
_K1, _B = 1.2, 0.75
_NAME, _TITLE, _TEXT, _OF_SERVER, _OF_ARGUMENT = 3.0, 2.0, 1.0, 0.5, 0.25
_SYNONYM_WEIGHT, _SIMILAR_WEIGHT, _TRANSLATION_WEIGHT = 0.6, 0.7, 0.9
_LONGEST_TEXT = 2_000
"""Indexed characters of each text. Longer texts add nothing, and a server may send megabytes."""
_LONGEST_ARGUMENT = 200
_MOST_ARGUMENTS = 50
_LONGEST_EMBEDDED = 500
_MOST_TERMS = 40
_MAX_INDEXES = 8
_MOST_SIMILAR = 3
_SIMILAR = 0.45
"""Dice coefficient of two words' trigrams, from which they count as similar."""
_VAGUELY_SIMILAR = 0.25
_SHORTEST_SIMILAR = 4
_RANK_CONSTANT, _MEANING_WEIGHT = 3, 0.7
"""Of reciprocal rank fusion. Its authors take 60 and 1, for long lists of equal quality. Here the first ranks by words
are the surest: with these values a weak model of meaning does no harm (`make bench-search`).
"""
_MOST_FUSED = 50


class ToolIndex:
    """Search index of a set of tools. `about` describes their servers, by name."""

    def __init__(self, tools: Iterable[Tool], about: Mapping[str, str], embed: EmbedTexts | None = None) -> None:
        self.tools = tuple(sorted(tools, key=lambda tool: tool.name))
        self._by_name = {tool.name: tool for tool in self.tools}
        of_servers = {server: _count(Counter(), text, _OF_SERVER) for server, text in about.items()}
        documents = [_tool_words(tool, of_servers.get(tool.server, {})) for tool in self.tools]
        lengths = [sum(words.values()) for words in documents]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._postings: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for n, document in enumerate(documents):
            length_norm = _K1 * (1 - _B + _B * lengths[n] / (average or 1.0))
            for term, weight in document.items():
                self._postings[term][n] = weight * (_K1 + 1) / (weight + length_norm)
        self._spellings = _Spellings(self._postings)
        texts = [_embedded_text(tool, about.get(tool.server, "")) for tool in self.tools]
        self._rank = embed(texts) if embed is not None and texts else None

    def find(self, name: str) -> Tool | None:
        """Return the tool of this exact name, or the only one that its server calls so."""
        if (tool := self._by_name.get(name)) is not None:
            return tool
        same = [tool for tool in self.tools if tool.original_name == name]
        return same[0] if len(same) == 1 else None

    def search(self, query: str, most: int = MOST_HITS) -> tuple[Tool, ...]:
        """Return the matching tools, best first, ties by name. Empty if no word matches."""
        scores: defaultdict[int, float] = defaultdict(float)
        for term, weight in self._query_terms(query):
            for n, score in self._scores(term).items():
                scores[n] += weight * score
        ranked: Sequence[int] = sorted(scores, key=lambda n: (-round(scores[n], 9), n))
        if self._rank is not None:
            ranked = _fuse(ranked, self._rank(query, _MOST_FUSED))
        return tuple(self.tools[n] for n in ranked[:most])

    def closest_servers(self, query: str) -> Sequence[str]:
        """Return the servers with the words that are most like those of a query without matches, best first."""
        terms = [term for word in words(split_identifier(query)) if not word.is_stop_word for term in word.terms]
        similar = [pair for term in terms[:_MOST_TERMS] for pair in self._spellings.closest(term, _VAGUELY_SIMILAR)]
        best: dict[str, float] = {}
        for term, similarity in similar:
            for n in self._postings[term]:
                server = self.tools[n].server
                best[server] = max(best.get(server, 0.0), similarity)
        return sorted(best, key=lambda server: (-best[server], server))

    def _query_terms(self, query: str) -> Iterable[tuple[str, float]]:
        """Return the terms to look up, with their weights: as written, or the closest ones in the index."""
        terms: dict[str, float] = {}
        for word in words(split_identifier(query)):
            if len(terms) >= _MOST_TERMS:
                break
            if word.is_stop_word:
                continue
            own = [fold_accents(term) for term in word.terms]
            known = [term for term in own if term in self._postings]
            for term in own:
                terms.setdefault(term, 1.0)
            if known and not word.is_unspaced:
                continue
            translations = list(translate(word))
            for term in translations:
                terms.setdefault(term, _TRANSLATION_WEIGHT)
            if not word.is_unspaced and not any(map(self._is_findable, (own[0], *translations))):
                for term, similarity in self._spellings.closest(own[0]):
                    terms.setdefault(term, _SIMILAR_WEIGHT * similarity)
        return list(terms.items())[:_MOST_TERMS]

    def _is_findable(self, term: str) -> bool:
        return any(spelling in self._postings for spelling in (term, *SYNONYMS.get(term, ())))

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
        return math.log(1 + (len(self.tools) - count + 0.5) / (count + 0.5))


class _Spellings:
    """Words of an index by their trigrams: typing errors, and words that are alike in several languages."""

    def __init__(self, terms: Iterable[str]) -> None:
        self._trigrams = {term: _trigrams(term) for term in terms if len(term) >= _SHORTEST_SIMILAR}
        self._terms: defaultdict[str, list[str]] = defaultdict(list)
        for term, trigrams in self._trigrams.items():
            for trigram in trigrams:
                self._terms[trigram].append(term)

    def closest(self, written: str, least: float = _SIMILAR) -> Sequence[tuple[str, float]]:
        """Return the most similar terms with their similarity, best first."""
        if len(written) < _SHORTEST_SIMILAR:
            return ()
        wanted = _trigrams(written)
        shared = Counter(term for trigram in wanted for term in self._terms.get(trigram, ()))
        similar = ((2 * count / (len(wanted) + len(self._trigrams[term])), term) for term, count in shared.items())
        ranked = sorted((-similarity, term) for similarity, term in similar if similarity >= least)
        return [(term, -negative) for negative, term in ranked[:_MOST_SIMILAR]]


def _trigrams(word: str) -> frozenset[str]:
    padded = f"  {word} "
    return frozenset(padded[n : n + 3] for n in range(len(padded) - 2))


def _fuse(by_words: Sequence[int], by_meaning: Sequence[int]) -> Sequence[int]:
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking, weight in ((by_words, 1.0), (by_meaning, _MEANING_WEIGHT)):
        for rank, n in enumerate(ranking[:_MOST_FUSED], start=1):
            scores[n] += weight / (_RANK_CONSTANT + rank)
    return sorted(scores, key=lambda n: (-scores[n], n))


def _embedded_text(tool: Tool, about: str) -> str:
    name = split_identifier(tool.original_name).replace("_", " ")
    arguments = " ".join(argument.replace("_", " ") for argument, _ in _arguments(tool))
    return f"{tool.server} {name}. {tool.title} {tool.description[:_LONGEST_EMBEDDED]} {arguments}. {about}"


def _arguments(tool: Tool) -> Iterator[tuple[str, str]]:
    """Yield names and descriptions of the first arguments."""
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, schema in list(properties.items())[:_MOST_ARGUMENTS]:
        description = schema.get("description") if isinstance(schema, dict) else ""
        yield str(name)[:_LONGEST_TEXT], description[:_LONGEST_ARGUMENT] if isinstance(description, str) else ""


def _tool_words(tool: Tool, about: Mapping[str, float]) -> Counter[str]:
    """Count the words of a tool, weighted by field. `about` holds those of its server."""
    counted: Counter[str] = Counter()
    arguments = list(_arguments(tool))
    for text, weight in (
        (tool.original_name, _NAME),
        (tool.title, _TITLE),
        (tool.server, _TEXT),
        (tool.description, _TEXT),
        (" ".join(name for name, _ in arguments), _TEXT),
        (" ".join(description for _, description in arguments), _OF_ARGUMENT),
    ):
        _count(counted, text, weight)
    counted.update(about)
    return counted


def _count(counted: Counter[str], text: str, weight: float) -> Counter[str]:
    for word in words(split_identifier(text[:_LONGEST_TEXT])):
        if not word.is_stop_word:
            for term in word.terms:
                counted[fold_accents(term)] += weight  # type: ignore[assignment]
    return counted


class ToolIndexes:
    """Cache of the last indexes. Subsequent searches in a workspace mostly have the same tools."""

    def __init__(self, embed: EmbedTexts | None = None) -> None:
        self._embed = embed
        self._indexes: list[tuple[tuple[Tool, ...], Mapping[str, str], ToolIndex]] = []
        """Indexes with their tools and server descriptions, the last used first."""
        self._lock = asyncio.Lock()

    async def get(self, offered: ToolSet) -> ToolIndex:
        """Return the index of these tools. Comparison and indexing run in a thread because thousands of tools take
        long.
        """
        tools = offered.tools
        about = {guide.server: guide.description for guide in offered.guidance if guide.description}
        if (cached := self._find_cached(tools, about)) is not None:
            return cached
        async with self._lock:  # one at a time, and of equal tools only one
            if (cached := self._find_cached(tools, about)) is not None:
                return cached
            index = await asyncio.to_thread(self._find_or_build, tools, about)
            others = [other for other in self._indexes if other[2] is not index]
            self._indexes = [(tools, about, index), *others][:_MAX_INDEXES]
            return index

    def _find_cached(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> ToolIndex | None:
        """Return the index of these very objects: a fast test."""
        for n, (indexed, described, index) in enumerate(self._indexes):
            if len(tools) == len(indexed) and all(map(operator.is_, tools, indexed)) and about == described:
                self._indexes.insert(0, self._indexes.pop(n))
                return index
        return None

    def _find_or_build(self, tools: tuple[Tool, ...], about: Mapping[str, str]) -> ToolIndex:
        """Return the index of equal tools, listed again by their servers, else a new one."""
        for indexed, described, index in tuple(self._indexes):
            if about == described and tools == indexed:
                return index
        return ToolIndex(tools, about, self._embed)
