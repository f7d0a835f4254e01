"""Understanding a request: which tools it asks for, and with which arguments.

A tool is as good as the words that it shares with the request: those of its name count most, then its title, its
description and its parameters; words that many of the offered tools share count little. The verb decides between tools
about the same thing. Arguments are found in the remaining words, by the kind of each parameter, and checked against the
schema; a missing one is looked up or asked for, never invented. No tool is known by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from bot.domain.messages import ToolCall
from bot.domain.tools import Tool
from bot.domain.vocabulary import translate, words
from bot.llm.demo import language
from bot.llm.demo.language import PHRASES, READING, RELATED, VERBS, Request, pattern, plain_name, stems, terms
from bot.llm.tool_schemas import tool_schema

# -------------------- parameters

_KINDS = ("date", "choice", "flag", "number", "list", "email", "path", "id", "to", "from", "other", "place", "text")
"""Kinds of words that a parameter takes, in the order in which parameters are filled."""
_SPOKEN = ("text", "place", "path", "from", "to")
_NAMES = {kind: stems(names) for kind, names in PHRASES["kinds"].items()}
_TYPES = {"boolean": "flag", "integer": "number", "number": "number", "array": "list"}
_FORMATS = {"date": "date", "date-time": "other", "email": "email"}
_PATTERNS = {kind: [pattern(name) for name in names.split()] for kind, names in PHRASES["values"].items()}
"""Patterns of values by the kind of parameter that takes them: the first that fits counts."""
_HINTS = {"place": (pattern("somewhere"), 0.5), "path": (pattern("path"), 1.5)}
"""Words that make a kind of parameter likely, and their weights."""
_LIMITS = stems("limit count max maximum top most size")
_ORDINALS: Mapping[str, int] = PHRASES["ordinals"]


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of a tool."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    kind: str
    description: str = ""

    def accepts(self, value: Any) -> bool:
        """Return True if a value fits the parameter's schema."""
        from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415 - loads slowly

        return bool(Draft202012Validator(self.schema).is_valid(value))


def parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a tool: the required ones first, in the order of the schema."""
    simple = tool_schema(schema, re.compile(r"(?s).*"))
    properties, required = simple["properties"], simple.get("required", ())
    names = dict.fromkeys([*required, *properties])
    return tuple(
        Parameter(name, schema, name in required, _kind(name, schema), str(schema.get("description", "")))
        for name in names
        for schema in [properties[name]]
    )


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "choice"
    if variants := [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]:
        return _kind(name, {**variants[0], **{key: schema[key] for key in schema if key != "anyOf"}})
    types = schema.get("type", [])
    declared = next((name for name in ([types] if isinstance(types, str) else types) if name != "null"), "")
    if declared not in ("", "string") or types == "null":
        return _TYPES.get(declared, "other")
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    opening = set(terms(str(schema.get("description", ""))[:80])[:8])
    by_description = "place" if _NAMES["place"] & opening and "email" not in opening else "text"
    return next((kind for kind, names in _NAMES.items() if names & set(terms(name))), by_description)


# -------------------- arguments


class _Filling:
    """Arguments of one tool, found in one request."""

    def __init__(self, wanted: Sequence[Parameter], request: Request, today: date) -> None:
        self._arguments: dict[str, Any] = {}
        self._wanted, self._request, self._today = wanted, request, today

    def fill(self, *, verbatim: bool) -> tuple[dict[str, Any], ...]:
        """Return the arguments of one call, or of several if values are listed for a single parameter. Optional ones
        are filled only if the request clearly names them. `verbatim` texts keep their stop words.
        """
        self._take_named()
        several: list[dict[str, Any]] = []
        for parameter in sorted(self._wanted, key=lambda other: (_KINDS.index(other.kind), not other.required)):
            if parameter.name in self._arguments or parameter.kind == "text":
                continue
            if not several and (values := self._listed(parameter)):
                several = [{parameter.name: value} for value in values]
                self._arguments |= several[0]
            elif parameter.kind == "number" and not parameter.required:
                self._put(parameter, self._implied_number(parameter))
            elif (
                parameter.required
                or parameter.kind in ("date", "email")
                or all(isinstance(choice, str | None) for choice in parameter.schema.get("enum", [0]))
            ):
                self._put(
                    parameter, None if parameter.kind == "place" else _value(parameter, self._request, self._today)
                )
        self._take_texts(verbatim=verbatim)
        return tuple({**self._arguments, **listed} for listed in several) or (self._arguments,)

    def _put(self, parameter: Parameter, value: Any) -> None:
        most = parameter.schema.get("maximum")
        if isinstance(value, int) and isinstance(most, int) and not parameter.required:
            value = min(value, most)  # the closest that the tool can do
        if value not in (None, "") and parameter.accepts(value):
            self._arguments[parameter.name] = value

    def _take_named(self) -> None:
        """Take the arguments that the text names: `title: Shopping`, `limit=5`, `limit 5`, `5 days`."""
        request = self._request
        named = [parameter for parameter in self._wanted if _name_pattern(parameter.name)]
        names = "|".join(f"(?P<name_{n}>{_name_pattern(parameter.name)})" for n, parameter in enumerate(named))
        marks = list(re.finditer(rf"(?i)(?:{names})\s*[:=\uff1a](?!//)\s*", request.left)) if names else []
        for mark in reversed(marks[:20]):  # what follows the last one is used up first
            parameter = named[int((mark.lastgroup or "").removeprefix("name_"))]
            answer = Request(request.left[mark.end() :].strip(" \t\r\n,;"), answer=True)
            self._put(parameter, _value(parameter, answer, self._today))
            if parameter.name in self._arguments:
                request.blank(mark.start(), len(request.left))
        number = r"([-+]?\d{1,15}(?:\.\d{1,6})?)"
        for parameter in named:
            if parameter.kind == "number" and parameter.name not in self._arguments:
                name = _name_pattern(parameter.name)
                after = rf"{name}\s+(?:of|is|to|number|no\.?)?\s*#?{number}(?![\w.]*\d)"
                before = rf"(?<![\w.-]){number}(?:[\s-]+{name}|日(?:間|分))"
                if match := request.take(re.compile(f"(?i){after}|{before}")):
                    self._put(parameter, _as_number(parameter, match[1] or match[2]))

    def _listed(self, parameter: Parameter) -> list[Any]:
        """Return the places for a parameter, or the numbers that are listed for the only one that is required."""
        values: list[Any] = []
        if parameter.kind == "place":
            names = [word.text for word in words(parameter.description) if word.text[:1].isupper()]
            for place in self._request.places(sure=not parameter.required):
                values += get_close_matches(place.capitalize(), names, 1, 0.8) or [place]
        elif parameter.kind == "number" and [other for other in self._wanted if other.required] == [parameter]:
            numbers = self._request.take(pattern("numbers"))
            values = list(dict.fromkeys(map(int, re.findall(r"\d+", numbers.group()))))[:4] if numbers else []
        return [value for value in values if parameter.accepts(value)]

    def _implied_number(self, parameter: Parameter) -> int | None:
        """Return the number for a parameter such as `limit`, after `the last`, or for `days`, up to a day."""
        names = stems(plain_name(parameter.name))
        if names & _LIMITS and (match := self._request.take(pattern("last"))):
            return int(match[1] or match[2])
        if "day" not in names:
            return None
        day = self._request.day(self._today)
        count = (day[1] - self._today).days + 1 if day else 0
        usual = parameter.schema.get("default")
        return count if count > max(2, usual if isinstance(usual, int) else 0) else None

    def _take_texts(self, *, verbatim: bool) -> None:
        """Assign quoted text, the text after the colon and the rest of the sentence to the text parameters that still
        need a value.
        """
        request = self._request
        left = [parameter for parameter in self._wanted if parameter.name not in self._arguments]
        due = [parameter for parameter in left if parameter.required and parameter.kind in _SPOKEN]
        optional = [parameter for parameter in left if not parameter.required and parameter.kind == "text"]
        if len(due or optional) == 1:
            texts = [text for text in [request.payload() or request.quoted()] if text]
            due = due or (optional if texts else [])
        else:
            texts = [*iter(request.quoted, ""), *filter(None, [request.payload()])]
        if len(texts) < len(due) and due[0].kind != "place" and (rest := request.rest(verbatim=verbatim)):
            texts.insert(0, rest)
        for parameter, text in zip(due, texts, strict=False):
            self._put(parameter, text)


def _name_pattern(name: str) -> str:
    *first, last = plain_name(name).split() or [""]
    spelled = r"[\s_-]{0,3}".join(re.escape(word) for word in [*first, last.removesuffix("s")])
    return rf"(?<!\w){spelled}(?:s|ged|d)?(?!\w)" if last else ""


def _value(parameter: Parameter, request: Request, today: date) -> Any:  # noqa: PLR0911 - one for each kind
    match parameter.kind:
        case "choice":
            choices = parameter.schema["enum"]
            plain = [choice for choice in choices if choice is not None and not isinstance(choice, dict | list)]
            for choice in sorted(plain, key=lambda choice: -len(str(choice))):
                spelled = "|".join(map(re.escape, sorted({str(choice), plain_name(str(choice))} - {""})))
                case = "(?i)" if len(str(choice)) > 1 else ""
                if spelled and request.take(re.compile(rf"{case}(?:(?<!\w)|(?=[^\x00-\u02ff]))(?:{spelled})(?!\w)")):
                    return choice
            return choices[0] if len(choices) == 1 else None
        case "flag":
            return False if request.take(pattern("false")) else True if request.take(pattern("true")) else None
        case "list":
            return _list(parameter.schema.get("items", {}), request)
        case "date":
            if day := request.day(today):
                return day[0] if day[0] in parameter.description.lower() else day[1].isoformat()
            return request.payload() if request.is_answer and "format" not in parameter.schema else None
        case kind if kind in _PATTERNS:
            if match := next(filter(None, map(request.take, _PATTERNS[kind])), None):
                return _as_number(parameter, match[1]) if kind == "number" else match[1]
            return request.payload() if request.is_answer and kind not in ("number", "email") else None
        case _:
            return request.spoken()


def _as_number(parameter: Parameter, digits: str) -> float | int:
    if digits.isalpha():
        return int(PHRASES["numbers"].split().index(digits.lower()))
    number = float(digits.replace(",", ""))
    whole = "." not in digits or ("integer" in str(parameter.schema.get("type")) and number.is_integer())
    return int(number) if whole else number


def _list(items: Mapping[str, Any], request: Request) -> list[Any] | None:
    element = Parameter("", items, required=True, kind=_kind("", items))
    pieces: list[Any] = [part.strip(" \"'.") for part in pattern("separators").split(request.spoken())]
    if element.kind in ("number", "choice"):
        pieces = [_value(element, Request(piece, answer=True), date.min) for piece in filter(None, pieces)]
    return None if element.kind in ("flag", "list", "other") else [piece for piece in pieces if piece != ""] or None


# -------------------- plans

Call = tuple[Tool, Mapping[str, Any]]
"""A tool and its arguments."""
Shown = Mapping[str, Sequence[Any]]
"""Values of the results that the user saw last, in their order, by the name of their field."""


@dataclass(frozen=True, slots=True)
class Step:
    """A call that the user wants. `missing` are its missing arguments. `finder` is a call whose results may have the
    only one; with `takes_all` the step is a call for each result. `changes` is True unless the tool only reads,
    `is_lookup` for the search of documents that may answer a question.
    """

    tool: Tool
    arguments: Mapping[str, Any]
    missing: tuple[Parameter, ...] = ()
    finder: Call | None = None
    takes_all: bool = False
    changes: bool = False
    is_lookup: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in their order. With `rivals` there is none, as several tools that change something fit equally well. With
    none of both no tool fits.
    """

    steps: tuple[Step, ...] = ()
    rivals: tuple[Tool, ...] = ()

    @property
    def is_clear(self) -> bool:
        """True if all calls can be made."""
        return bool(self.steps) and not any(step.missing and not step.finder for step in self.steps)

    @property
    def is_lookup(self) -> bool:
        """True if the only call is a search of documents."""
        return any(step.is_lookup for step in self.steps)


_ENOUGH = 1.7
_CLOSE = 0.8
_MOST_WISHES = 4
_MOST_WORDS = 40
"""Words that are searched for typing errors."""
_BUNDLED = frozenset(PHRASES["bundled"].split())
_DOCUMENTS = stems("document guide knowledge help")


class _Candidate:
    """A tool and the terms that describe it."""

    def __init__(self, tool: Tool) -> None:
        self.tool, self.server = tool, tool.name.partition("__")[0]
        self.name = frozenset(terms(tool.original_name or tool.name))
        server, title = frozenset(terms(tool.server)), frozenset(terms(tool.title[:600], content=True))
        own = self.name | server | title
        self.claimed = own | {word for word, related in RELATED.items() if related & own}
        described = terms(tool.description[:600], content=True)
        named = [*terms(tool.original_name), *terms(tool.title), *described[:1]]
        self.actions = next((VERBS[term] for term in named if term in VERBS), frozenset())
        self.is_reading = bool(self.actions & READING) or tool.annotations.read_only is True
        self.parameters = parameters(tool.input_schema)
        self.required = [parameter for parameter in self.parameters if parameter.required]
        taken = " ".join(f"{other.name} {other.description[:200]}" for other in self.parameters[:40])
        self._fields = ((self.name, 3.0), (title, 2.2), (server, 2.2), (described, 1.0), (frozenset(terms(taken)), 0.7))

    def match(self, term: str) -> float:
        """Return how strongly a term stands for this tool."""
        worths = [worth for field, worth in self._fields if term in field]
        return worths[0] + 0.4 * (len(worths) - 1) if worths else 0.0

    def is_named(self, text: str) -> bool:
        """Return True if a text has words of the tool's own names."""
        return not self.claimed.isdisjoint(terms(text, content=True))

    def steps(self, request: Request, today: date, known: Mapping[str, Any], shown: Shown) -> tuple[Step, ...]:
        """Return the calls that a request asks for; arguments that it does not name are the known ones."""
        known = {parameter.name: known[parameter.name] for parameter in self.parameters if parameter.name in known}
        open_ones = [parameter for parameter in self.required if parameter.name not in known]
        wanted = open_ones if request.is_answer else self.parameters
        for parameter in self.required:
            default = parameter.schema.get("default")
            if default is not None and parameter.accepts(default):
                known.setdefault(parameter.name, default)
        name = self.required[0].name if len(self.required) == 1 else ""
        meant = [{name: value} for value in _pointed_at(request, shown.get(name, ()))] or [{}]
        fills = _Filling(wanted, request, today).fill(verbatim=not self.is_reading)
        filled = [{**known, **pointed, **arguments} for pointed in meant for arguments in fills]
        missing = tuple(parameter for parameter in self.required if parameter.name not in filled[0])
        filled = filled[:1] if missing else filled
        return tuple(Step(self.tool, arguments, missing, changes=not self.is_reading) for arguments in filled)

    def accepts_text(self, text: str) -> bool:
        """Return True if a text is all that the tool needs."""
        return [parameter.kind for parameter in self.required] == ["text"] and self.required[0].accepts(text)


def _pointed_at(request: Request, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values that `the second one`, `it` or `all of them` means among those that were shown."""
    match = pattern("reference").search(request.head) if values else None
    if match and match["all"]:
        return values
    if match is None or not (match["ordinal"] or len(values) == 1):
        return ()
    at = _ORDINALS[match["ordinal"].lower()] if match["ordinal"] else 0
    return [values[at]] if at < len(values) else ()


def sought_text(checked: ToolCall) -> str:
    """Return the longest argument of a call of unknown outcome, which can be looked for; empty if there is none."""
    values = (str(value) for value in checked.arguments.values() if isinstance(value, str | int))
    return max((" ".join(value.split())[:200] for value in values), key=len, default="")


class Planner:
    """Plans for requests to these tools. The same request and tools give the same plan."""

    def __init__(self, tools: Sequence[Tool], today: date, shown: Shown | None = None) -> None:
        self._candidates = [_Candidate(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
        self._today, self._shown = today, shown or {}
        texts = " ".join(f"{tool.title} {tool.server} {tool.description[:600]}" for tool in tools)
        self._known = frozenset({*VERBS, *RELATED, *(word.base for word in words(texts))})

    def plan(self, request: str) -> Plan:
        """Return the plan for a request of one or several wishes. The servers that come with the program keep what they
        alone could do, unless the request has words of another server.
        """
        bundled = [other for other in self._candidates if other.server in _BUNDLED]
        if 0 < len(bundled) < len(self._candidates):
            plan = Planner([other.tool for other in bundled], self._today, self._shown).plan(request)
            nouns = set(terms(language.Request(language.rewrite(request)).head, content=True)) - VERBS.keys()
            own = frozenset().union(*(other.claimed for other in bundled))
            others = frozenset().union(*(other.claimed for other in self._candidates if other not in bundled))
            if plan.is_clear and nouns & own and not nouns & (others - own):
                return plan
        for boldly in (True, False):
            wishes = language.split_wishes(request, boldly=boldly)
            plans = [self._plan_wish(wish) for wish in wishes] if 1 < len(wishes) <= _MOST_WISHES else []
            if plans and self._are_separate(plans, wishes, boldly=boldly):
                return Plan(tuple(step for plan in plans for step in plan.steps)[: 2 * _MOST_WISHES])
        order = language.ORDERS.match(language.LEAD.sub("", request, count=1))
        things = terms(order["thing"], content=True) if order else []
        meant = {*things, *(related for thing in things for related in RELATED.get(thing, ()))}
        if bool(things) and not any(other.match(word) for other in self._candidates for word in meant):
            return Plan()
        content = terms(request, content=True)
        nouns = set(content) - VERBS.keys()
        if language.WANTS.search(request) and not any(nouns & other.claimed for other in self._candidates):
            return self._look_up(request)
        plan = self._plan_wish(request)
        is_question = language.QUESTION.search(request) or language.ASKS.search(request)
        subjects = [noun for noun in nouns if not re.fullmatch(r"\d+|wh\w+", noun) and not language.is_time(noun)]
        has_subject = bool(subjects) or len(content) - len(nouns) > 1
        return self._look_up(request) if plan == Plan() and is_question and has_subject else plan

    def follow_up(self, request: str, previous: Call, plan: Plan, *, is_last: bool) -> Plan:
        """Return the plan for a request that no tool fits, or whose arguments are missing, after a `previous` call:
        `and on Sunday?`, `how about Osaka?`; if it `is_last` the last answer's, `Osaka?`, too.
        """
        candidate = _Candidate(previous[0])
        text, follows = language.LEAD.sub("", request, count=1), language.FOLLOWS.match(request) is not None
        wanted = terms(text, content=True)
        has_verb = not VERBS.keys().isdisjoint(wanted)
        is_same_tool = candidate.is_reading and any(step.missing and step.tool == previous[0] for step in plan.steps)
        is_same_subject = follows and not has_verb and candidate.is_named(text)
        is_value = (
            is_last and plan == Plan() and len(wanted) <= 3 and not has_verb and not language.PERSONAL.search(text)
        )
        is_short = is_value or (follows and (plan == Plan() or plan.is_lookup))
        if not (is_same_tool or is_same_subject or is_short) or not (candidate.is_reading or re.search(r"\d", text)):
            return plan
        steps = candidate.steps(Request(text, candidate.claimed), self._today, previous[1], {})
        takes_nothing = is_value and not (steps[0].arguments or previous[1])  # `Roll a die` after a list
        return plan if steps[0].missing or takes_nothing else Plan(steps)

    def resume(self, call: Call, answer: str) -> Plan:
        """Return the plan for a tool after the answer to a question about its missing arguments."""
        candidate = _Candidate(call[0])
        steps = candidate.steps(Request(answer, answer=True), self._today, call[1], self._shown)
        return Plan(tuple(self._add_finder(step, candidate, answer) for step in steps))

    def check(self, checked: ToolCall) -> Plan:
        """Return the call that looks for the effect of a call of unknown outcome: a list of its server, else a search
        for its text. It is never the call itself.
        """
        server = checked.name.partition("__")[0]
        reads = [other for other in self._candidates if other.tool.annotations.read_only and other.server == server]
        reads.sort(key=lambda other: "list" not in other.actions)
        text = sought_text(checked)
        steps = [Step(other.tool, {}) for other in reads if not other.required]
        steps += [Step(other.tool, {other.required[0].name: text}) for other in reads if other.accepts_text(text)]
        return Plan(tuple(steps[:1]))

    def _are_separate(self, plans: Sequence[Plan], wishes: Sequence[str], *, boldly: bool) -> bool:
        """Return True if the parts of a request are separate wishes. Without a verb, a part is one only if it names the
        subject of another server's tool that reads.
        """
        if not all(plan.is_clear for plan in plans) or any(step.finder for plan in plans[1:] for step in plan.steps):
            return False
        tools = [plan.steps[0].tool for plan in plans]
        later = zip(plans[1:], tools[1:], wishes[1:], strict=True)
        are_reads = all(not plan.steps[0].changes and _Candidate(tool).is_named(wish) for plan, tool, wish in later)
        return not boldly or (are_reads and len({tool.server for tool in tools}) == len(tools))

    def _plan_wish(self, wish: str) -> Plan:
        if language.HOW_TO.search(wish):
            return self._look_up(wish)
        if language.PROHIBITION.search(wish):
            return Plan()
        wish = language.in_known_words(language.rewrite(wish), self._known, 1)
        plan = self._best(wish)
        return plan if plan != Plan() else self._best(language.in_known_words(wish, self._known, _MOST_WORDS))

    def _best(self, wish: str) -> Plan:
        is_question = (language.QUESTION.match(wish) or language.ASKS.search(wish)) is not None
        candidates = [other for other in self._candidates if other.is_reading or not is_question]
        scores = _Wish(wish).scores(candidates)
        enough = max(_ENOUGH, _CLOSE * max(scores, default=0.0))
        matches = [
            (score, candidate, candidate.steps(Request(wish, candidate.claimed), self._today, {}, self._shown))
            for score, candidate in zip(scores, candidates, strict=True)
            if score >= enough
        ]
        if not matches:
            return Plan()
        score, best, steps = min(matches, key=lambda match: _rank(*match))
        rivals = [match.tool for other, match, others in matches if not others[0].missing and other > 0.98 * score]
        if len(rivals) > 1 and not steps[0].missing and not best.is_reading:
            return Plan(rivals=tuple(rivals[:_MOST_WISHES]))
        return Plan(tuple(self._add_finder(step, best, wish) for step in steps))

    def _add_finder(self, step: Step, candidate: _Candidate, text: str) -> Step:
        """Return a step that lacks nothing but an id with the call that may find it: the search for `the note about
        milk`, the list for `all notes`.
        """
        is_meant = not candidate.is_reading or candidate.is_named(text)
        if not is_meant or [parameter.kind in ("number", "id") for parameter in step.missing] != [True]:
            return step
        request = Request(text, candidate.claimed)
        sought = request.quoted() or request.rest()
        reference = pattern("reference").search(text)
        takes_all = reference is not None and reference["all"] is not None
        for other in self._candidates:
            if other.tool.server != step.tool.server or not (sought or takes_all):
                continue
            if candidate.claimed.issuperset(terms(sought)):
                if takes_all and "list" in other.actions and not other.required:
                    return replace(step, finder=(other.tool, {}), takes_all=True)
            elif "search" in other.actions and other.accepts_text(sought):
                return replace(step, finder=(other.tool, {other.required[0].name: sought}), takes_all=takes_all)
        return step

    def _look_up(self, question: str) -> Plan:
        """Return the search of a tool for documents, if there is one, also with the English words for Japanese ones."""
        english = (term for word in words(question) if word.is_unspaced for term in translate(word))
        query = " ".join(dict.fromkeys([question, *english]))
        for candidate in self._candidates:
            is_search = "search" in candidate.actions and candidate.claimed & _DOCUMENTS
            if is_search and candidate.accepts_text(query):
                return Plan((Step(candidate.tool, {candidate.required[0].name: query}, is_lookup=True),))
        return Plan()


def _rank(score: float, candidate: _Candidate, steps: Sequence[Step]) -> tuple[Any, ...]:
    """Return the sort key, best first: complete calls, then the score (a number that fits a parameter raises it), then
    the least harmful tool.
    """
    numbers = {parameter.name for parameter in candidate.parameters if parameter.kind in ("number", "id")}
    score = round(score + (0.5 if numbers & steps[0].arguments.keys() else 0.0), 3)
    is_destructive = candidate.tool.annotations.destructive is True
    return (bool(steps[0].missing), -score, not candidate.is_reading, is_destructive, candidate.tool.name)


class _Wish:
    """Words of a wish, by their meaning."""

    def __init__(self, text: str) -> None:
        head = Request(text).head
        asked = list(dict.fromkeys(terms(head)))
        # Text in quotes or after the colon is mostly something to be written down: it says little about the tool.
        self._weights = dict.fromkeys(terms(text, content=True), 0.25 if asked else 1.0)
        self._weights |= dict.fromkeys(terms(head, content=True), 1.0)
        for related in (related for term in asked for related in RELATED.get(term, ())):
            self._weights.setdefault(related, 0.8)
        self._particles = {(verb.stem, last.stem): 2.0 for verb, last in pairwise(words(head)) if last.is_stop_word}
        self._hints = {kind: worth for kind, (hint, worth) in _HINTS.items() if hint.search(head)}
        verbs = [term for term in asked if term in VERBS]
        self._deletes = any("delete" in VERBS[term] for term in verbs)
        clear = [term for term in verbs if term not in language.VAGUE]
        if any(word.is_unspaced for word in words(head)):
            clear.reverse()  # the verb comes last in Japanese
        self._verb = next(iter(clear or [term for term in verbs if term != "what"] or verbs), "")
        unspoken = frozenset({"list", "get"}) if head.strip() == text.strip() else frozenset({"add"})
        self._actions = VERBS.get(self._verb, unspoken)

    def scores(self, candidates: Sequence[_Candidate]) -> list[float]:
        """Return the scores of tools for the wish. A feature of many tools counts little."""

        def rarity(fits: Iterable[object]) -> float:
            return 1 / math.sqrt(max(1, sum(map(bool, fits))))

        for term in self._weights:
            self._weights[term] *= rarity(candidate.match(term) for candidate in candidates)
        for verb, particle in self._particles:
            self._particles[verb, particle] = 2 * rarity(candidate.match(particle) for candidate in candidates)
        rarity_of_action = rarity(self._actions & candidate.actions for candidate in candidates)
        return [self._score(candidate, rarity_of_action) for candidate in candidates]

    def _score(self, candidate: _Candidate, rarity_of_action: float) -> float:
        points = sum(weight * candidate.match(term) for term, weight in self._weights.items())
        points += sum(worth for pair, worth in self._particles.items() if candidate.name.issuperset(pair))
        points += sum(self._hints.get(kind, 0.0) for kind in {parameter.kind for parameter in candidate.parameters})
        if "delete" in candidate.actions and not self._deletes:
            return points - 10.0  # nothing is removed without a request
        if self._actions & candidate.actions:
            strength = 0.0 if self._verb in candidate.name else 0.8 if self._verb in {"", *language.VAGUE} else 2.4
            return points + strength * rarity_of_action
        is_harmless = not candidate.actions or (candidate.actions & READING and self._actions & READING)
        return points if is_harmless else points - 1.5
