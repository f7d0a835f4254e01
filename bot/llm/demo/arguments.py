"""Arguments for a tool, found in the words of a request.

Required parameters are searched everywhere; optional ones are filled only if the request clearly names them. Values are
checked against the schema. A missing value is reported as missing, never invented.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any

from bot.domain.tokenizer import stem, words
from bot.llm.demo.request import SEPARATORS, Request, plain_name, request_terms
from bot.llm.demo.vocabulary import stems
from bot.llm.tool_schemas import tool_schema

_KINDS = ["date", "choice", "flag", "number", "list", "email", "id", "from", "to", "other", "place", "text"]
"""Kinds of words that a parameter takes, in the order in which parameters are filled."""
_NAMES: Mapping[str, frozenset[str]] = {
    "id": stems("id key number no code ref reference identifier slug uuid index"),
    "date": stems("date day when due deadline"),
    "email": stems("email"),
    "from": stems("from source origin src departure"),
    "to": stems("to target destination dest into arrival recipient assignee channel"),
    "place": stems("place city town location country region prefecture district station area address room"),
}
_FORMATS: Mapping[str, str] = {"date": "date", "date-time": "other", "email": "email"}
_TYPES: Mapping[str, str] = {"boolean": "flag", "integer": "number", "number": "number", "array": "list"}
_PHRASE = r"(?:the\s+)?([^\s,.;:!?][^,.;:!?]{0,80}?)(?=\s+(?:from|to|by|on|at)\b|[,.;:!?]|\s*$)"
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "email": re.compile(r"([\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)"),
    "id": re.compile(r"#?((?<![\w-])(?=[\w-]{0,40}\d)[\w-]{1,64})(?!\w)"),
    "from": re.compile(rf"(?i)\bfrom\s+{_PHRASE}"),
    "to": re.compile(rf"(?i)\b(?:in)?to\s+{_PHRASE}"),
    "number": re.compile(
        r"(?a)((?<![\w.,-])[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,15}(?:\.\d{1,6})?(?![\d.]\d)))(?!-\d\d)"
    ),
}
_MOST_NAMED = 20
_YES = re.compile(r"(?i)(?<!\w)(?:on|yes|true|enabled?|activated?)(?!\w)")
_NO = re.compile(r"(?i)(?<!\w)(?:off|no|false|disabled?|deactivated?)(?!\w)")
_NUMBERS = re.compile(r"(?i)\d{1,15}(?:\s*(?:,\s*and|,|&|\band)\s+(?:[a-z]{2,30}\s+)?#?\d{1,15})+(?!\w)")
_LIMITS = stems("limit count max maximum top most size")
_LAST = re.compile(r"(?i)\b(?:last|first|latest|newest|top)\s+(\d{1,4})\b")
_WEEK = re.compile(r"(?i)\b(?:a|one|the whole)\s+week\b")


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of a tool."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    kind: str

    @property
    def description(self) -> str:
        """The description; empty if there is none."""
        return str(self.schema.get("description", ""))

    @property
    def is_obvious(self) -> bool:
        """True if words for the parameter cannot mean anything else."""
        choices = self.schema.get("enum", [0])
        return self.kind in ("date", "email") or all(isinstance(choice, str | None) for choice in choices)

    def accepts(self, value: Any) -> bool:
        """Return True if a value fits the parameter's schema."""
        from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415 - loads slowly

        return bool(Draft202012Validator(self.schema).is_valid(value))


def parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a tool: the required ones first, in the order of the schema."""
    simple = tool_schema(schema, re.compile(r"(?s).*"))
    properties, required = simple["properties"], simple.get("required", ())
    names = dict.fromkeys([*required, *properties])
    return tuple(Parameter(name, properties[name], name in required, _kind(name, properties[name])) for name in names)


def fill(
    wanted: Sequence[Parameter], request: Request, today: date, *, verbatim: bool = False
) -> tuple[dict[str, Any], ...]:
    """Return the arguments that a request names for parameters: those of one call, or of several if it lists values for
    a single parameter. `verbatim` texts keep their article.
    """
    arguments = _named(wanted, request, today)
    several: list[dict[str, Any]] = []
    for parameter in sorted(wanted, key=lambda parameter: (_KINDS.index(parameter.kind), not parameter.required)):
        if parameter.name in arguments or parameter.kind == "text":
            continue
        if not several and (values := _listed(parameter, wanted, request)):
            several = [{parameter.name: value} for value in values]
            arguments |= several[0]
        elif parameter.kind == "number" and not parameter.required:
            _put(arguments, parameter, _implied_number(parameter, request, today))
        elif parameter.kind != "place" and (parameter.required or parameter.is_obvious):
            _put(arguments, parameter, _value(parameter, request, today))
    _fill_texts([parameter for parameter in wanted if parameter.name not in arguments], request, arguments, verbatim)
    return tuple({**arguments, **listed} for listed in several) or (arguments,)


def _put(arguments: dict[str, Any], parameter: Parameter, value: Any) -> None:
    if value is not None and value != "" and parameter.accepts(value):
        arguments[parameter.name] = value


def _listed(parameter: Parameter, wanted: Sequence[Parameter], request: Request) -> list[Any]:
    """Return the places for a parameter, or the numbers that are listed for the only one that is required."""
    values: list[Any] = []
    if parameter.kind == "place":
        names = [word.text for word in words(parameter.description) if word.text[:1].isupper()]
        for place in request.places(sure=not parameter.required):
            values += get_close_matches(place.capitalize(), names, 1, 0.8) or [place]
    elif parameter.kind == "number" and [other for other in wanted if other.required] == [parameter]:
        numbers = request.take(_NUMBERS)
        values = list(dict.fromkeys(map(int, re.findall(r"\d+", numbers.group()))))[:4] if numbers else []
    return [value for value in values if parameter.accepts(value)]


def _named(wanted: Sequence[Parameter], request: Request, today: date) -> dict[str, Any]:
    """Return the arguments that the text names: `title: Shopping`, `limit=5`, `limit 5`, `5 days`."""
    patterns = {parameter: _name_pattern(parameter.name) for parameter in wanted if plain_name(parameter.name)}
    by_group = {f"name_{n}": parameter for n, parameter in enumerate(patterns)}
    names = "|".join(f"(?P<{group}>{patterns[parameter]})" for group, parameter in by_group.items())
    marks = re.finditer(rf"(?:{names})\s*[:=\uff1a](?!//)\s*", request.left, re.IGNORECASE) if names else ()
    arguments: dict[str, Any] = {}
    for mark in reversed(list(marks)[:_MOST_NAMED]):  # what follows the last one is used up first
        parameter = by_group[mark.lastgroup or ""]
        answer = Request(request.left[mark.end() :].strip(" \t\r\n,;"), answer=True)
        _put(arguments, parameter, _value(parameter, answer, today))
        if parameter.name in arguments:
            request.blank(mark.start(), len(request.left))
    number = r"([-+]?\d{1,15}(?:\.\d{1,6})?)(?![\w.]*\d)"
    for parameter, pattern in patterns.items():
        if parameter.kind == "number" and parameter.name not in arguments:
            after_name = re.compile(rf"(?i){pattern}\s+(?:of|is|to|number|no\.?)?\s*#?{number}")
            before_name = re.compile(rf"(?i)(?<![\w.-]){number}\s+{pattern}")
            if match := request.take(after_name) or request.take(before_name):
                _put(arguments, parameter, _as_number(parameter, match[1]))
    return arguments


def _name_pattern(name: str) -> str:
    *first, last = plain_name(name).split()
    spelled = r"[\s_-]{0,3}".join(re.escape(word) for word in [*first, last.removesuffix("s")])
    return rf"(?<!\w){spelled}(?:s|ged|d)?(?!\w)"


def _value(parameter: Parameter, request: Request, today: date) -> Any:  # noqa: PLR0911 - one for each kind
    match parameter.kind:
        case "choice":
            return _choice(parameter.schema["enum"], request)
        case "flag":
            return False if request.take(_NO) else True if request.take(_YES) else None
        case "list":
            return _list(parameter.schema.get("items", {}), request)
        case "date":
            if day := request.day(today):
                return day[0] if day[0] in parameter.description.lower() else day[1].isoformat()
            return request.payload() if request.is_answer and "format" not in parameter.schema else None
        case "number" | "email" | "id" | "from" | "to":
            if match := request.take(_PATTERNS[parameter.kind]):
                return _as_number(parameter, match[1]) if parameter.kind == "number" else match[1]
            is_free = request.is_answer and parameter.kind not in ("number", "email")
            return request.payload() or None if is_free else None
        case _:
            return _text(request)


def _text(request: Request) -> str:
    return request.quoted() or request.payload() or request.rest()


def _choice(choices: Sequence[Any], request: Request) -> Any:
    plain = [choice for choice in choices if choice is not None and not isinstance(choice, dict | list)]
    for choice in sorted(plain, key=lambda choice: -len(str(choice))):
        spelled = sorted({str(choice), plain_name(str(choice))} - {""})
        pattern = "|".join(rf"(?:(?<!\w)|(?=[^\x00-\u02ff])){re.escape(spelling)}(?!\w)" for spelling in spelled)
        if pattern and request.take(re.compile(pattern, re.IGNORECASE if len(str(choice)) > 1 else 0)):
            return choice
    return choices[0] if len(choices) == 1 else None


def _as_number(parameter: Parameter, digits: str) -> float | int:
    number = float(digits.replace(",", ""))
    whole = "." not in digits or ("integer" in str(parameter.schema.get("type")) and number.is_integer())
    return int(number) if whole else number


def _list(items: Mapping[str, Any], request: Request) -> list[Any] | None:
    element = Parameter("", items, required=True, kind=_kind("", items))
    pieces = [piece for part in SEPARATORS.split(_text(request)) if (piece := part.strip(" \"'."))]
    if element.kind in ("flag", "list", "other"):
        return None
    if element.kind in ("number", "choice"):
        pieces = [_value(element, Request(piece, answer=True), date.min) for piece in pieces]
    return pieces or None


def _implied_number(parameter: Parameter, request: Request, today: date) -> int | None:
    """Return the number for a parameter such as `limit`, after `the last`, or for one such as `days`, up to a day."""
    names = set(map(stem, plain_name(parameter.name).split()))
    if names & _LIMITS and (match := request.take(_LAST)):
        return int(match[1])
    if "day" in names and request.take(_WEEK):
        return 7
    if "day" not in names or not (day := request.day(today)):
        return None
    count = (day[2] - today).days + 1
    return count if count > 2 and count > parameter.schema.get("default", 0) and not day[0].startswith("2") else None


def _fill_texts(wanted: Sequence[Parameter], request: Request, arguments: dict[str, Any], verbatim: bool) -> None:
    """Assign quoted text, the text after the colon and the rest of the sentence to the text parameters that still need
    a value.
    """
    spoken = ("text", "place", "from", "to")
    due = [parameter for parameter in wanted if parameter.required and parameter.kind in spoken]
    optional = [parameter for parameter in wanted if not parameter.required and parameter.kind == "text"]
    if len(due or optional) == 1:
        texts = [text for text in [request.payload() or request.quoted()] if text]
        due = due or (optional if texts else [])
    else:
        texts = [*iter(request.quoted, ""), *filter(None, [request.payload()])]
    if len(texts) < len(due) and due[0].kind != "place" and (rest := request.rest(verbatim=verbatim)):
        texts.insert(0, rest)
    for parameter, text in zip(due, texts, strict=False):
        _put(arguments, parameter, text)


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "choice"
    variants = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if variants:
        return _kind(name, {**variants[0], **{key: schema[key] for key in schema if key != "anyOf"}})
    types = schema.get("type", [])
    declared = next((name for name in ([types] if isinstance(types, str) else types) if name != "null"), "")
    if declared not in ("", "string") or types == "null":
        return _TYPES.get(declared, "other")
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    opening = set(request_terms(str(schema.get("description", ""))[:80])[:8])
    by_description = "place" if _NAMES["place"] & opening and "email" not in opening else "text"
    return next((kind for kind, names in _NAMES.items() if names & set(request_terms(name))), by_description)
