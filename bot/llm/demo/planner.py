"""Choice of the tools that a request asks for, judged by its words.

A tool is as good as the words it shares with the request: words of its name count most, then its title, its
description and its parameters; words that many of the offered tools share count little. The verb decides between tools
about the same thing. No tool or server is known by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from bot.domain.tokenizer import words
from bot.domain.tools import Tool
from bot.llm.demo.arguments import Parameter, fill, parameters
from bot.llm.demo.request import Request, content_terms, is_time, request_terms, split_clauses
from bot.llm.demo.vocabulary import DAY, HOW_TO, LEAD, PHRASES, QUESTION, READ_ONLY, READING, RELATED, VAGUE, VERBS

_ENOUGH = 1.7
_CLOSE = 0.8
_MOST_CALLS = 4
_MOST_WORDS = 40
"""Words that are searched for typing errors."""
_SOMEWHERE = re.compile(r"\b(?:in|at|near)\s+[^\W\d_a-z]")
_DOCUMENTS = {"document", "guid", "knowledg", "help"}

Call = tuple[Tool, Mapping[str, Any]]
"""A tool and its arguments."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls in their order. With `missing`, the only call lacks these arguments. With `rivals` there is no call, as
    several tools that change something fit equally well. With none of them no tool fits.
    """

    calls: tuple[Call, ...] = ()
    missing: tuple[Parameter, ...] = ()
    rivals: tuple[Tool, ...] = ()

    @property
    def is_clear(self) -> bool:
        """True if the calls can be made."""
        return bool(self.calls) and not self.missing


class _Candidate:
    """A tool and the terms that describe it."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.name = frozenset(request_terms(tool.original_name or tool.name))
        server, title = frozenset(request_terms(tool.server)), frozenset(content_terms(tool.title[:600]))
        own = self.name | server | title
        self.claimed = own | {word for word, related in RELATED.items() if related & own}
        described = content_terms(tool.description[:600])
        named = (request_terms(tool.original_name), request_terms(tool.title), described[:1])
        self.actions = next((VERBS[term] for terms in named for term in terms if term in VERBS), frozenset())
        self.is_reading = bool(self.actions & READING) or tool.annotations.read_only is True
        self.parameters = parameters(tool.input_schema)
        texts = [text for parameter in self.parameters[:40] for text in (parameter.name, parameter.description[:200])]
        taken = [term for text in texts for term in request_terms(text)]
        self._fields = [
            (self.name, 3.0),
            (title, 2.2),
            (server, 2.2),
            (frozenset(described), 1.0),
            (frozenset(taken), 0.7),
        ]

    def match(self, term: str) -> float:
        """Return how strongly a term stands for this tool."""
        worths = [worth for terms, worth in self._fields if term in terms]
        return worths[0] + 0.4 * (len(worths) - 1) if worths else 0.0

    def plan(self, request: Request, today: date, known: Mapping[str, Any]) -> Plan:
        """Return the call that a request asks for; arguments that it does not name are the known ones."""
        names = {parameter.name for parameter in self.parameters}
        known = {name: value for name, value in known.items() if name in names}
        wanted = self.parameters
        if request.is_answer:
            wanted = tuple(parameter for parameter in wanted if parameter.required and parameter.name not in known)
        fills = [{**known, **filled} for filled in fill(wanted, request, today, verbatim=not self.is_reading)]
        for parameter in self.parameters:
            default = parameter.schema.get("default")
            if parameter.required and default is not None and parameter.accepts(default):
                fills = [{parameter.name: default, **filled} for filled in fills]
        missing = [parameter for parameter in self.parameters if parameter.required and parameter.name not in fills[0]]
        return Plan(_distinct((self.tool, filled) for filled in fills[: 1 if missing else None]), tuple(missing))


def plan_calls(request: str, tools: Sequence[Tool], today: date) -> Plan:
    """Return the plan for a request. The same request and tools give the same plan."""
    candidates = [_Candidate(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
    clauses = split_clauses(request)
    if 1 < len(clauses) <= _MOST_CALLS:
        plans = [_plan_clause(clause, candidates, today) for clause in clauses]
        if all(plan.is_clear for plan in plans):
            return Plan(_distinct(call for plan in plans for call in plan.calls)[: 2 * _MOST_CALLS])
    plan = _plan_clause(request, candidates, today)
    question = LEAD.sub("", request, count=1)
    if plan == Plan() and QUESTION.match(question):
        terms = (term for term in content_terms(question) if term.isalpha() and not QUESTION.match(term))
        return _look_up(request, candidates) if any(term not in VERBS for term in terms) else plan
    return plan


def plan_follow_up(request: str, previous: Call, plan: Plan, today: date) -> Plan:
    """Return the plan for a request that no tool fits, or whose arguments are missing, after a `previous` call: `and on
    Sunday?`, `how about Osaka?`, `Osaka?`.
    """
    tool, known = previous
    candidate = _Candidate(tool)
    lead = LEAD.match(request)
    text = request[lead.end() :] if lead else request
    terms = content_terms(text)
    is_same_tool = bool(plan.missing) and plan.calls[0][0] == tool and candidate.is_reading
    is_same_subject = bool(lead) and VERBS.keys().isdisjoint(terms) and not candidate.claimed.isdisjoint(terms)
    is_short = plan == Plan() and (bool(lead) or len(terms) <= 3)
    if not (is_same_tool or is_same_subject or is_short) or not (candidate.is_reading or re.search(r"\d", text)):
        return plan
    changed = candidate.plan(Request(text, candidate.claimed), today, known)
    is_same = all(arguments == known for _, arguments in changed.calls)
    return plan if changed.missing or (is_same and not is_same_tool and not DAY.search(text)) else changed


def resume(call: Call, answer: str, today: date) -> Plan:
    """Return the plan for a tool after the answer to a question about its missing arguments."""
    return _Candidate(call[0]).plan(Request(answer, answer=True), today, call[1])


def _plan_clause(clause: str, candidates: Sequence[_Candidate], today: date) -> Plan:
    if HOW_TO.match(clause):
        return _look_up(clause, candidates)
    for pattern, plain in PHRASES:
        clause = pattern.sub(plain, clause, count=1)
    tools = [candidate.tool for candidate in candidates]
    texts = " ".join(text for tool in tools for text in (tool.title, tool.server, tool.description[:600]))
    described = {word.base for word in words(texts)}
    clause = _correct(clause, VERBS.keys() - VAGUE, described, 1)
    plan = _best(clause, candidates, today)
    if (
        plan == Plan()
        and (corrected := _correct(clause, {*VERBS, *RELATED, *described}, described, _MOST_WORDS)) != clause
    ):
        return _best(corrected, candidates, today)
    return plan


def _best(clause: str, candidates: Sequence[_Candidate], today: date) -> Plan:
    if READ_ONLY.match(clause):
        candidates = [candidate for candidate in candidates if candidate.is_reading]
    scores = _scores(clause, candidates)
    enough = max(_ENOUGH, _CLOSE * max(scores, default=0.0))
    matches = [
        (score, candidate, candidate.plan(Request(clause, candidate.claimed), today, {}))
        for score, candidate in zip(scores, candidates, strict=True)
        if score >= enough
    ]
    if not matches:
        return Plan()
    score, best, plan = min(matches, key=lambda match: _rank(*match))
    rivals = [match.tool for other, match, other_plan in matches if not other_plan.missing and other > 0.98 * score]
    if len(rivals) > 1 and not plan.missing and not best.is_reading:
        return Plan(rivals=tuple(rivals[:_MOST_CALLS]))
    return plan


def _look_up(question: str, candidates: Sequence[_Candidate]) -> Plan:
    """Return the search of a tool for documents, if there is one."""
    for candidate in candidates:
        required = [parameter for parameter in candidate.parameters if parameter.required]
        is_search = "search" in candidate.actions and candidate.claimed & _DOCUMENTS
        if is_search and [parameter.kind for parameter in required] == ["text"] and required[0].accepts(question):
            return Plan(((candidate.tool, {required[0].name: question}),))
    return Plan()


def _rank(score: float, candidate: _Candidate, plan: Plan) -> tuple[Any, ...]:
    """Return the sort key, best first: complete calls, then the score (a number that fits a parameter raises it), then
    the least harmful tool.
    """
    numbers = {parameter.name for parameter in candidate.parameters if parameter.kind in ("number", "id")}
    score = round(score + (0.5 if numbers & plan.calls[0][1].keys() else 0.0), 3)
    is_destructive = candidate.tool.annotations.destructive is True
    return (bool(plan.missing), -score, not candidate.is_reading, is_destructive, candidate.tool.name)


def _distinct(calls: Iterable[Call]) -> tuple[Call, ...]:
    listed = list(calls)
    return tuple(call for at, call in enumerate(listed) if call not in listed[:at])


def _scores(clause: str, candidates: Sequence[_Candidate]) -> list[float]:
    head = Request(clause).head
    asked = list(dict.fromkeys(request_terms(head)))
    # Text in quotes or after the colon is mostly something to be written down: it says little about the tool.
    weights = dict.fromkeys(content_terms(clause), 0.25 if asked else 1.0) | dict.fromkeys(content_terms(head), 1.0)
    for term in asked:
        for related in RELATED.get(term, ()):
            weights.setdefault(related, 0.8)
    verbs = [term for term in asked if term in VERBS]
    verb = next((term for term in verbs if term not in VAGUE), verbs[0] if verbs else "")
    unspoken = frozenset({"list", "get"}) if head.strip() == clause.strip() else frozenset({"add"})
    wanted = VERBS.get(verb, unspoken)
    deletes = any("delete" in VERBS[term] for term in verbs)
    somewhere = 0.5 if _SOMEWHERE.search(head) else 0.0
    particles = [(first.stem, second.stem) for first, second in pairwise(words(head)) if second.is_stop_word]
    every = {*weights, *(particle for _, particle in particles)}
    total = len(candidates)
    rarity = {term: _rarity(sum(candidate.match(term) > 0 for candidate in candidates), total) for term in every}
    rarity_of_action = _rarity(sum(bool(wanted & candidate.actions) for candidate in candidates), total)

    def score(candidate: _Candidate) -> float:
        points = sum(weight * rarity[term] * candidate.match(term) for term, weight in weights.items())
        points += sum(2.0 * rarity[particle] for verb, particle in particles if {verb, particle} <= candidate.name)
        points += somewhere if any(parameter.kind == "place" for parameter in candidate.parameters) else 0.0
        if "delete" in candidate.actions and not deletes:
            return points - 10.0  # nothing is removed without a request
        if wanted & candidate.actions:
            strength = 0.0 if verb in candidate.name else 2.4 if verb and verb not in VAGUE else 0.8
            return points + strength * rarity_of_action
        harmless = not candidate.actions or (candidate.actions & READING and wanted & READING)
        return points if harmless else points - 1.5

    return [score(candidate) for candidate in candidates]


def _rarity(count: int, total: int) -> float:
    """Return 1 for a term of a single tool, less if more of the tools share it."""
    return math.log(1 + total / max(count, 1)) / math.log(1 + total) if total else 0.0


def _correct(request: str, known: Iterable[str], described: set[str], most: int) -> str:
    """Return the request with typing errors in its first words replaced by known words with the same first letter."""
    known = sorted(word for word in known if len(word) > 3)
    right = {*VERBS, *RELATED, *described}
    for word in reversed(list(words(Request(request).head))[:most]):
        is_name = word.text[:1].isupper() and word.start > 0
        is_right = is_name or word.is_stop_word or is_time(word.base) or {word.base, word.stem} & right
        if len(word.base) > 3 and not is_right:
            alike = [other for other in known if other[0] == word.base[0]]
            close = get_close_matches(word.base, alike, 1, 0.75)
            request = request[: word.start] + (close[0] if close else word.text) + request[word.end :]
    return request
