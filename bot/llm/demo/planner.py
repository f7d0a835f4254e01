"""Choice of the tools that a request asks for, judged by its words.

A tool is as good as the words it shares with the request: words of its name count most, then its title, its
description and its parameters; words that many of the offered tools share count little. The verb decides between tools
about the same thing. No tool or server is known by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise
from typing import Any

from bot.domain.tokenizer import words
from bot.domain.tools import Tool
from bot.llm.demo.arguments import FilledArguments, Kind, Parameter, fill, fill_changed, fill_missing, parameters
from bot.llm.demo.request import (
    READING,
    RELATED,
    VAGUE,
    VERBS,
    Request,
    content_terms,
    is_time,
    named_day,
    request_terms,
    split_clauses,
)

_ENOUGH = 1.7
_CLOSE = 0.8
_SUBJECT = 0.6
_DESCRIBED = 600
"""Characters of a description that are read."""
_MOST_CALLS = 4
_SOMEWHERE = re.compile(r"\b(?:in|at|near)\s+[^\W\d_a-z]")
_REMEMBER = re.compile(
    r"^\W*(?:please\s+)?(?:(?:don['\u2019]?t|do not|never)\s+forget|(?:note|write|jot)\s+down)\b", re.IGNORECASE
)
_HOW_TO = re.compile(
    r"^\W*(?:how\s+(?:do|can|could|should|would)\s+(?:i|we|you|one)\b|how\s+to\b|where\s+(?:do|can)\s+(?:i|we)\b)",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(
    rf"{_HOW_TO.pattern}|^\W*(?:why|who|when|should|can i|may i|did|do i|does|is|are|was|has|have)\b"
    r"|^\W*(?:please\s+)?(?:do not|don['\u2019]?t|never|without)\b(?!\s+forget)",
    re.IGNORECASE,
)
"""Questions and prohibitions, which never ask for a change."""
_LEAD = re.compile(r"^\W*(?:(?:and|also|or|but|so|then|how about|what about|now)\b\s*)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool and the arguments for it."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Calls:
    """The request is clear: these calls, in this order."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The tool is clear, but these arguments are missing. `arguments` holds the others."""

    tool: Tool
    arguments: Mapping[str, Any]
    missing: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several tools that change something fit equally well."""

    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class NoMatch:
    """No tool fits."""


Plan = Calls | Incomplete | Ambiguous | NoMatch


class _Candidate:
    """A tool and the terms that describe it."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.name = frozenset(request_terms(tool.original_name or tool.name))
        self.server = frozenset(request_terms(tool.server))
        self.title = frozenset(content_terms(tool.title[:_DESCRIBED]))
        self.claimed = self.name | self.server | self.title
        described = content_terms(tool.description[:_DESCRIBED])
        self.body = frozenset(described)
        self.parameters = frozenset(_parameter_terms(tool))
        named = (request_terms(tool.original_name), request_terms(tool.title), described[:1])
        self.actions = next((VERBS[term] for terms in named for term in terms if term in VERBS), frozenset())
        self.fields = (
            (self.name, 3.0),
            (self.title, 2.2),
            (self.server, 2.2),
            (self.body, 1.0),
            (self.parameters, 0.7),
        )

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        return {parameter.name: parameter.kind for parameter in parameters(self.tool.input_schema)}

    @property
    def is_reading(self) -> bool:
        return bool(self.actions & READING) or self.tool.annotations.read_only is True

    def match(self, term: str) -> float:
        """Return how strongly a term stands for this tool."""
        worths = [worth for terms, worth in self.fields if term in terms]
        if worths:
            return worths[0] + 0.4 * (len(worths) - 1)
        return 1.4 if any(_same_word(term, word) for word in self.claimed) else 0.0


def plan_calls(request: str, tools: Sequence[Tool], today: date) -> Plan:
    """Return the plan for a request. The same request and tools give the same plan."""
    candidates = [_Candidate(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
    for at_verbs in (True, False):
        clauses = split_clauses(request, at_verbs=at_verbs)
        if 1 < len(clauses) <= _MOST_CALLS:
            plans = [_plan_clause(clause, candidates, today) for clause in clauses]
            calls = [call for plan in plans if isinstance(plan, Calls) for call in plan.calls]
            if all(isinstance(plan, Calls) for plan in plans):
                return Calls(_distinct(calls)[: 2 * _MOST_CALLS])
    request = _correct_verb(_LEAD.sub("", request, count=1), candidates)
    plan = _plan_clause(request, candidates, today)
    if isinstance(plan, NoMatch) and (corrected := _correct(request, candidates)) != request:
        return _plan_clause(corrected, candidates, today)
    return plan


def plan_follow_up(request: str, previous: Call, plan: Plan, today: date) -> Plan:
    """Return the plan for a request that no tool fits, or whose arguments are missing, after a `previous` call: `and on
    Sunday?`, `how about Osaka?`, `Osaka?`.
    """
    candidate = _Candidate(previous.tool)
    lead = _LEAD.match(request)
    text = request[lead.end() :] if lead else request
    terms = content_terms(text)
    is_same_subject = bool(lead) and VERBS.keys().isdisjoint(terms) and not candidate.claimed.isdisjoint(terms)
    match plan:
        case NoMatch() if lead or len(terms) <= 3:
            pass
        case Calls() | Incomplete() if is_same_subject:
            pass
        case _:
            return plan
    if not candidate.is_reading and not re.search(r"\d", text):
        return plan
    fills = fill_changed(previous.tool.input_schema, previous.arguments, text, candidate.claimed, today)
    is_same = all(filled.arguments == previous.arguments for filled in fills)
    if fills[0].missing or (is_same and not named_day(text)):
        return plan
    return Calls(_distinct([Call(previous.tool, filled.arguments) for filled in fills]))


def resume(tool: Tool, arguments: Mapping[str, Any], answer: str, today: date) -> Plan:
    """Return the plan for a tool after the answer to a question about its missing arguments."""
    filled = fill_missing(tool.input_schema, arguments, answer, today)
    if filled.missing:
        return Incomplete(tool, filled.arguments, filled.missing)
    return Calls((Call(tool, filled.arguments),))


def is_how_to(request: str) -> bool:
    """Return True for a question about how something is done."""
    return _HOW_TO.match(request) is not None


def _plan_clause(clause: str, candidates: Sequence[_Candidate], today: date) -> Plan:
    if _READ_ONLY.match(clause):
        candidates = [candidate for candidate in candidates if candidate.is_reading]
    if is_how_to(clause):
        return _look_up(clause, candidates)
    clause = _REMEMBER.sub("remember", clause)
    scores = _scores(clause, candidates)
    enough = max(_ENOUGH, _CLOSE * max(scores, default=0.0))
    matches = [
        (score, candidate, fill(candidate.tool.input_schema, clause, candidate.claimed, today))
        for score, candidate in zip(scores, candidates, strict=True)
        if score >= enough
    ]
    if not matches:
        return NoMatch()
    matches.sort(key=lambda match: _rank(*match))
    score, best, fills = matches[0]
    if fills[0].missing:
        return Incomplete(best.tool, fills[0].arguments, fills[0].missing)
    rivals = [match.tool for other, match, filled in matches if not filled[0].missing and other > 0.98 * score]
    if len(rivals) > 1 and not best.is_reading:
        return Ambiguous(tuple(rivals[:_MOST_CALLS]))
    return Calls(_distinct([Call(best.tool, filled.arguments) for filled in fills]))


def _look_up(question: str, candidates: Sequence[_Candidate]) -> Plan:
    """Return the search of a tool for documents, if there is one."""
    for candidate in candidates:
        required = [parameter for parameter in parameters(candidate.tool.input_schema) if parameter.required]
        is_search = "search" in candidate.actions and candidate.claimed & {"document", "guid", "knowledg", "help"}
        if is_search and [parameter.kind for parameter in required] == [Kind.TEXT] and required[0].accepts(question):
            return Calls((Call(candidate.tool, {required[0].name: question}),))
    return NoMatch()


def _rank(score: float, candidate: _Candidate, fills: Sequence[FilledArguments]) -> tuple[Any, ...]:
    """Return the sort key, best first: complete calls, then the score (a number that fits a parameter raises it), then
    the least harmful tool.
    """
    missing = len(fills[0].missing)
    numbered = any(candidate.kinds.get(name) in (Kind.NUMBER, Kind.IDENTIFIER) for name in fills[0].arguments)
    score = round(score + (0.5 if numbered else 0.0), 3)
    is_destructive = candidate.tool.annotations.destructive is True
    return (missing > 0, -score, not candidate.is_reading, is_destructive, missing, candidate.tool.name)


def _distinct(calls: Sequence[Call]) -> tuple[Call, ...]:
    return tuple(call for at, call in enumerate(calls) if call not in calls[:at])


def _parameter_terms(tool: Tool) -> list[str]:
    properties = tool.input_schema.get("properties")
    terms: list[str] = []
    for name, schema in list(properties.items())[:40] if isinstance(properties, Mapping) else ():
        description = schema.get("description") if isinstance(schema, Mapping) else ""
        terms += request_terms(str(name))
        terms += content_terms(description[:200]) if isinstance(description, str) else ()
    return terms


def _scores(clause: str, candidates: Sequence[_Candidate]) -> list[float]:
    head = Request(clause).head
    asked = list(dict.fromkeys(request_terms(head)))
    # Text in quotes or after the colon is mostly something to be written down: it says little about the tool.
    weights = dict.fromkeys(content_terms(clause), 0.25 if asked else 1.0) | dict.fromkeys(content_terms(head), 1.0)
    for term in asked:
        for related in RELATED.get(term, ()):
            weights.setdefault(related, 0.8)
    if named_day(head):
        weights.setdefault("day", 0.5)
    verbs = [term for term in asked if term in VERBS]
    verb = next((term for term in verbs if term not in VAGUE), verbs[0] if verbs else "")
    unspoken = frozenset({"list", "get"}) if head.strip() == clause.strip() else frozenset({"add"})
    wanted = VERBS.get(verb, unspoken)
    deletes = any("delete" in VERBS[term] for term in verbs)
    somewhere = 0.5 if _SOMEWHERE.search(head) else 0.0
    rarity = _rarity(candidates)
    particles = [(one.stem, two.stem) for one, two in pairwise(words(head)) if two.is_stop_word]

    def score(candidate: _Candidate) -> float:
        total = sum(weight * _worth(term, candidate, rarity) for term, weight in weights.items())
        total += sum(2.0 * rarity(particle) for verb, particle in particles if {verb, particle} <= candidate.name)
        total += somewhere if Kind.PLACE in candidate.kinds.values() else 0.0
        if "delete" in candidate.actions and not deletes:
            return total - 10.0  # nothing is removed without a request
        if wanted & candidate.actions:
            strength = 0.0 if verb in candidate.name else 2.4 if verb and verb not in VAGUE else 0.8
            count = sum(bool(wanted & other.actions) for other in candidates)
            return total + strength * _weigh(count, len(candidates))
        harmless = not candidate.actions or (candidate.actions & READING and wanted & READING)
        return total if harmless else total - 1.5

    return [score(candidate) for candidate in candidates]


def _rarity(candidates: Sequence[_Candidate]) -> Callable[[str], float]:
    """Return the weight of a term: 1 if a single tool has it, less if more of the tools share it."""
    known: dict[str, float] = {}

    def rarity(term: str) -> float:
        if term not in known:
            count = sum(any(term in terms for terms, _ in candidate.fields) for candidate in candidates)
            known[term] = _weigh(count, len(candidates))
        return known[term]

    return rarity


def _weigh(count: int, total: int) -> float:
    return math.log(1 + total / max(count, 1)) / math.log(1 + total) if total else 0.0


def _worth(term: str, candidate: _Candidate, rarity: Callable[[str], float]) -> float:
    """Return the weight of a shared term. The noun of a whole server is common to its tools and still a strong sign."""
    match = candidate.match(term)
    return match * (max(rarity(term), _SUBJECT) if match >= 2 and term not in VERBS else rarity(term))


def _same_word(one: str, other: str) -> bool:
    """Return True if two stems probably belong to one word, as `translat` and `translator` do."""
    shared = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return shared >= 5 and shared >= 0.6 * max(len(one), len(other))


def _vocabulary(candidates: Sequence[_Candidate]) -> set[str]:
    """Return the words that describe the tools, in lower case."""
    tools = [candidate.tool for candidate in candidates]
    texts = (text for tool in tools for text in (tool.title, tool.server, tool.description[:_DESCRIBED]))
    return {word.base for word in words(" ".join(texts))}


def _correct(request: str, candidates: Sequence[_Candidate]) -> str:
    """Return the request with typing errors replaced by verbs and by words that describe the tools."""
    known = sorted(word for word in {*_vocabulary(candidates), *VERBS, *RELATED} if len(word) > 3)
    for word in reversed(list(words(Request(request).head))[:40]):
        is_name = word.text[:1].isupper() and word.start > 0
        if not (is_name or word.is_stop_word or is_time(word.base) or word.base in known or len(word.base) < 4):
            close = get_close_matches(word.base, known, 1, 0.8)
            request = request[: word.start] + (close[0] if close else word.text) + request[word.end :]
    return request


def _correct_verb(request: str, candidates: Sequence[_Candidate]) -> str:
    """Return the request with a typing error in a verb at its beginning corrected."""
    first = next(words(request), None)
    if first is None or len(first.base) < 5 or first.is_stop_word or first.stem in {*VERBS, *RELATED}:
        return request
    close = get_close_matches(first.base, sorted(VERBS.keys() - VAGUE), 1, 0.8)
    if not close or first.base in _vocabulary(candidates):
        return request
    return request[: first.start] + close[0] + request[first.end :]
