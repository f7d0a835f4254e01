"""Which of the offered tools a request asks for, judged by its words.

A tool is as good as the words it shares with the request: words of its name count most, then its title, its
description and its parameters; words that many of the offered tools share count little. The verb decides between
tools about the same thing. Nothing here knows a tool or a server by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any

from bot.domain.tools import Tool
from bot.llm.demo.arguments import FilledArguments, fill
from bot.llm.demo.request_parser import ParsedRequest
from bot.llm.demo.schemas import ParameterType, ToolParameter, parameters
from bot.llm.demo.tokenizer import DAYS, READING, VAGUE, VERBS, content_words, name_terms, same_stem, terms, words

_ENOUGH = 1.7
_CLOSE = 0.8
_SUBJECT = 0.6
_DESCRIBED = 600
_MOST_CALLS = 4
_BETWEEN = re.compile(r"\s*(?:;|\n+|,?\s+and\s+then\s+|,\s*then\s+|,?\s+and\s+also\s+)\s*", re.IGNORECASE)
_SOMEWHERE = re.compile(r"\b(?:in|at|near)\s+[^\W\d_a-z]")
_REMEMBER = re.compile(
    r"^\W*(?:please\s+)?(?:(?:don['\u2019]?t|do not|never)\s+forget|(?:note|write|jot)\s+down)\b", re.IGNORECASE
)


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
    """The tool is clear, but these arguments are missing. `known` holds the others."""

    tool: Tool
    known: Mapping[str, Any]
    missing: tuple[ToolParameter, ...]


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several tools that change something fit equally well: a person has to say which."""

    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class NoMatch:
    """No tool fits."""


Plan = Calls | Incomplete | Ambiguous | NoMatch


@dataclass(frozen=True, slots=True)
class _Profile:
    tool: Tool
    name: frozenset[str]
    server: frozenset[str]
    title: frozenset[str]
    body: frozenset[str]
    parameters: frozenset[str]
    actions: frozenset[str]
    kinds: Mapping[str, ParameterType]

    @property
    def claimed(self) -> frozenset[str]:
        return self.name | self.server | self.title

    @property
    def all(self) -> frozenset[str]:
        return self.claimed | self.body | self.parameters


def plan_calls(request: str, tools: Sequence[Tool], today: date) -> Plan:
    """Return the plan for a request. The same request and tools give the same plan."""
    profiles = [_profile(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
    clauses = [clause for clause in _BETWEEN.split(request) if clause.strip()]
    if 1 < len(clauses) <= _MOST_CALLS:
        plans = [_plan_clause(clause, profiles, today) for clause in clauses]
        calls = [call for plan in plans if isinstance(plan, Calls) for call in plan.calls]
        if all(isinstance(plan, Calls) for plan in plans):
            return Calls(_distinct(calls)[: 2 * _MOST_CALLS])
    return _plan_clause(request, profiles, today)


def _plan_clause(clause: str, profiles: Sequence[_Profile], today: date) -> Plan:
    clause = _REMEMBER.sub("remember", clause)
    scores = _scores(clause, profiles)
    best = max(scores, default=0.0)
    if best < _ENOUGH:
        return NoMatch()
    close = [
        (score, each) for score, each in zip(scores, profiles, strict=True) if score >= max(_ENOUGH, _CLOSE * best)
    ]
    filled = [(score, each, fill(each.tool.input_schema, clause, each.claimed, today)) for score, each in close]
    filled.sort(key=lambda entry: _rank(*entry))
    score, profile, fills = filled[0]
    if fills[0].missing:
        return Incomplete(profile.tool, fills[0].arguments, fills[0].missing)
    rivals = [each.tool for other, each, its in filled if not its[0].missing and other > 0.98 * score]
    if len(rivals) > 1 and not profile.actions & READING and not profile.tool.annotations.read_only:
        return Ambiguous(tuple(rivals[:_MOST_CALLS]))
    return Calls(_distinct([Call(profile.tool, each.arguments) for each in fills]))


def _rank(score: float, profile: _Profile, fills: Sequence[FilledArguments]) -> tuple[Any, ...]:
    """Return the sort key, best first: complete calls, then the score (a number that fits a parameter raises it), then
    the least harmful tool.
    """
    annotations = profile.tool.annotations
    harmless = bool(profile.actions & READING) or annotations.read_only is True
    missing = len(fills[0].missing)
    numbered = any(
        profile.kinds.get(name) in (ParameterType.NUMBER, ParameterType.IDENTIFIER) for name in fills[0].arguments
    )
    score = round(score + (0.5 if numbered else 0.0), 3)
    return (missing > 0, -score, not harmless, annotations.destructive is True, missing, profile.tool.name)


def _distinct(calls: Sequence[Call]) -> tuple[Call, ...]:
    return tuple(call for at, call in enumerate(calls) if call not in calls[:at])


def _profile(tool: Tool) -> _Profile:
    server = frozenset(name_terms(tool.server))
    name = frozenset(name_terms(tool.original_name or tool.name))
    title = frozenset(content_words(tool.title[:_DESCRIBED]))
    properties = tool.input_schema.get("properties")
    described: set[str] = set()
    for key, schema in list(properties.items())[:40] if isinstance(properties, Mapping) else ():
        text = schema.get("description") if isinstance(schema, Mapping) else ""
        described.update(name_terms(str(key)))
        described.update(content_words(text[:200]) if isinstance(text, str) else ())
    body = content_words(tool.description[:_DESCRIBED])
    actions = _actions(name_terms(tool.original_name)) or _actions(terms(tool.title)) or _actions(body[:1])
    kinds = {parameter.name: parameter.kind for parameter in parameters(tool.input_schema)}
    return _Profile(tool, name, server, title, frozenset(body), frozenset(described), actions, kinds)


def _actions(found: Sequence[str]) -> frozenset[str]:
    return next((VERBS[term] for term in found if term in VERBS), frozenset())


def _scores(clause: str, profiles: Sequence[_Profile]) -> list[float]:
    head = ParsedRequest(clause).head
    asked = list(dict.fromkeys(terms(head)))
    # What stands in quotes or after the colon is mostly something to be written down: it says little about the tool.
    weights = dict.fromkeys(content_words(clause), 0.25 if asked else 1.0) | dict.fromkeys(content_words(head), 1.0)
    if DAYS.intersection(word.text.lower() for word in words(head)):
        weights.setdefault("day", 0.5)
    verbs = [term for term in asked if term in VERBS]
    verb = next((term for term in verbs if term not in VAGUE), verbs[0] if verbs else "")
    unspoken = frozenset({"list", "get"}) if head.strip() == clause.strip() else frozenset({"add"})
    spoken = VERBS.get(verb, unspoken)
    somewhere = 0.5 if _SOMEWHERE.search(head) else 0.0
    rarity = _Rarity(profiles)
    particles = [(one.stem, two.stem) for one, two in pairwise(words(head)) if two.is_stop_word]
    return [
        sum(weight * _worth(term, profile, rarity) for term, weight in weights.items())
        + sum(2.0 * rarity.of(particle) for one, particle in particles if {one, particle} <= profile.name)
        + (somewhere if ParameterType.PLACE in profile.kinds.values() else 0.0)
        + _verb_score(verb, spoken, asked, profile, rarity)
        for profile in profiles
    ]


class _Rarity:
    """Weight of a word: 1 if a single tool has it, less if more of the offered tools share it."""

    def __init__(self, profiles: Sequence[_Profile]) -> None:
        self._profiles = profiles
        self._known: dict[str, float] = {}

    def of(self, term: str) -> float:
        if term not in self._known:
            self._known[term] = self._weigh(sum(term in profile.all for profile in self._profiles))
        return self._known[term]

    def of_action(self, actions: frozenset[str]) -> float:
        return self._weigh(sum(bool(actions & profile.actions) for profile in self._profiles))

    def _weigh(self, count: int) -> float:
        total = len(self._profiles)
        return math.log(1 + total / max(count, 1)) / math.log(1 + total) if total else 0.0


def _worth(term: str, profile: _Profile, rarity: _Rarity) -> float:
    """Return the weight of a shared word. The noun of a whole server is common to its tools and still a strong sign."""
    match = _match(term, profile)
    telling = rarity.of(term)
    return match * (max(telling, _SUBJECT) if match >= 2 and term not in VERBS else telling)


def _match(term: str, profile: _Profile) -> float:
    fields = (
        (profile.name, 3.0),
        (profile.title, 2.2),
        (profile.server, 2.2),
        (profile.body, 1.0),
        (profile.parameters, 0.7),
    )
    if found := [worth for field, worth in fields if term in field]:
        return found[0] + 0.4 * (len(found) - 1)
    return 1.4 if any(same_stem(term, word) for word in profile.claimed) else 0.0


def _verb_score(verb: str, spoken: frozenset[str], asked: Sequence[str], profile: _Profile, rarity: _Rarity) -> float:
    """Return the weight of the verb, negative if the tool does something else. Nothing is removed without a request."""
    if "delete" in profile.actions and not any("delete" in VERBS.get(term, ()) for term in asked):
        return -10.0
    if spoken & profile.actions:
        strength = 0.0 if verb in profile.name else 2.4 if verb and verb not in VAGUE else 0.8
        return strength * rarity.of_action(spoken)
    harmless = not profile.actions or (profile.actions & READING and spoken & READING)
    return 0.0 if harmless else -1.5
