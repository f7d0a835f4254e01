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
from enum import Enum, auto
from typing import Any

from bot.domain.tokenizer import stem, words
from bot.llm.demo.request import SEPARATORS, Request, plain_name, request_terms
from bot.llm.demo.vocabulary import stems
from bot.llm.tool_schemas import tool_schema


class Kind(Enum):
    """Kind of words that a parameter takes, in the order in which parameters are filled."""

    DATE = auto()
    MOMENT = auto()
    CHOICE = auto()
    FLAG = auto()
    NUMBER = auto()
    LIST = auto()
    EMAIL = auto()
    URL = auto()
    IDENTIFIER = auto()
    ORIGIN = auto()
    TARGET = auto()
    OTHER = auto()
    PLACE = auto()
    TEXT = auto()


_NAMES = {
    Kind.IDENTIFIER: stems("id key number no code ref reference identifier slug uuid index"),
    Kind.DATE: stems("date day when due deadline"),
    Kind.EMAIL: stems("email"),
    Kind.URL: stems("url uri link"),
    Kind.ORIGIN: stems("from source origin src departure"),
    Kind.TARGET: stems("to target destination dest into arrival recipient assignee channel"),
    Kind.PLACE: stems("place city town location country region prefecture district station area address room"),
}
_FORMATS = {"date": Kind.DATE, "date-time": Kind.MOMENT, "email": Kind.EMAIL, "uri": Kind.URL, "url": Kind.URL}
_TYPES = {"boolean": Kind.FLAG, "integer": Kind.NUMBER, "number": Kind.NUMBER, "array": Kind.LIST}
_PATTERNS = {
    Kind.MOMENT: re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)"),
    Kind.EMAIL: re.compile(r"([\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)"),
    Kind.URL: re.compile(r"(https?://[^\s<>\"']+[^\s<>\"'.,;:!?)])"),
    Kind.IDENTIFIER: re.compile(r"#?((?<![\w-])(?=[\w-]{0,40}\d)[\w-]{1,64})(?!\w)"),
    Kind.NUMBER: re.compile(
        r"((?<![\w.,-])[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,15}(?:\.\d{1,6})?(?![\d.]\d)))(?!-\d\d)", re.ASCII
    ),
}
_PREPOSITIONS = {Kind.ORIGIN: {"from"}, Kind.TARGET: {"to", "into", "with", "for", "in"}}
_YES = re.compile(r"(?<!\w)(?:on|yes|true|enabled?|activated?)(?!\w)", re.IGNORECASE)
_NO = re.compile(r"(?<!\w)(?:off|no|false|disabled?|deactivated?)(?!\w)", re.IGNORECASE)
_NUMBERS = re.compile(r"\d{1,15}(?:\s*(?:,\s*and|,|&|\band)\s+(?:[a-z]{2,30}\s+)?#?\d{1,15})+(?!\w)", re.IGNORECASE)
_LIMITS = stems("limit count max maximum top most size")
_LAST = re.compile(r"\b(?:last|first|latest|newest|top)\s+(\d{1,4})\b", re.IGNORECASE)
_WEEK = re.compile(r"\b(?:a|one|the whole)\s+week\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of a tool."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    kind: Kind

    @property
    def description(self) -> str:
        """The description; empty if there is none."""
        return str(self.schema.get("description", ""))

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
    for parameter in sorted(wanted, key=lambda parameter: (parameter.kind.value, not parameter.required)):
        if parameter.name in arguments or parameter.kind is Kind.TEXT:
            continue
        if not several and (values := _listed(parameter, wanted, request)):
            several = [{parameter.name: value} for value in values]
            arguments |= several[0]
        elif parameter.kind is Kind.NUMBER and not parameter.required:
            _put(arguments, parameter, _implied_number(parameter, request, today))
        elif parameter.kind is not Kind.PLACE and (parameter.required or _is_obvious(parameter)):
            _put(arguments, parameter, _value(parameter, request, today))
    _fill_texts([parameter for parameter in wanted if parameter.name not in arguments], request, arguments, verbatim)
    return tuple({**arguments, **listed} for listed in several) or (arguments,)


def _put(arguments: dict[str, Any], parameter: Parameter, value: Any) -> None:
    if value is not None and value != "" and parameter.accepts(value):
        arguments[parameter.name] = value


def _is_obvious(parameter: Parameter) -> bool:
    """Return True if words for the parameter cannot mean anything else."""
    if parameter.kind is Kind.CHOICE:
        return all(isinstance(choice, str | None) for choice in parameter.schema["enum"])
    return parameter.kind in (Kind.DATE, Kind.EMAIL, Kind.URL)


def _listed(parameter: Parameter, wanted: Sequence[Parameter], request: Request) -> list[Any]:
    """Return the places for a parameter, or the numbers that are listed for the only one that is required."""
    values: list[Any] = []
    if parameter.kind is Kind.PLACE:
        names = [word.text for word in words(parameter.description) if word.text[:1].isupper()]
        for place in request.places() or ([request.rest(place=True)] if request.is_answer else []):
            values += [] if not place else get_close_matches(place.capitalize(), names, 1, 0.8) or [place]
    elif parameter.kind is Kind.NUMBER and [other for other in wanted if other.required] == [parameter]:
        numbers = request.take(_NUMBERS)
        values = list(dict.fromkeys(map(int, re.findall(r"\d+", numbers.group()))))[:4] if numbers else []
    return [value for value in values if parameter.accepts(value)]


def _named(wanted: Sequence[Parameter], request: Request, today: date) -> dict[str, Any]:
    """Return the arguments that the text names: `title: Shopping`, `limit=5`, `limit 5`, `5 days`."""
    patterns = {parameter: _name_pattern(parameter.name) for parameter in wanted if plain_name(parameter.name)}
    marks = sorted(
        (mark.span(), parameter.name, parameter)
        for parameter, pattern in patterns.items()
        if (mark := re.search(rf"{pattern}\s*[:=\uff1a](?!//)\s*", request.left, re.IGNORECASE))
    )
    ends = [start for (start, _), *_ in marks[1:]] + [len(request.left)]
    arguments: dict[str, Any] = {}
    for ((start, after), _, parameter), until in zip(marks, ends, strict=False):
        answer = Request(request.left[after : max(after, until)].strip(" \t\r\n,;"), answer=True)
        _put(arguments, parameter, _value(parameter, answer, today))
        if parameter.name in arguments:
            request.blank(start, max(after, until))
    number = r"([-+]?\d{1,15}(?:\.\d{1,6})?)(?![\w.]*\d)"
    for parameter, pattern in patterns.items():
        if parameter.kind is Kind.NUMBER and parameter.name not in arguments:
            after_name = re.compile(rf"{pattern}\s+(?:of|is|to|number|no\.?)?\s*#?{number}", re.IGNORECASE)
            before_name = re.compile(rf"(?<![\w.-]){number}\s+{pattern}", re.IGNORECASE)
            if match := request.take(after_name) or request.take(before_name):
                _put(arguments, parameter, _as_number(parameter, match[1]))
    return arguments


def _name_pattern(name: str) -> str:
    *first, last = plain_name(name).split()
    spelled = r"[\s_-]{0,3}".join(re.escape(word) for word in [*first, last.removesuffix("s")])
    return rf"(?<!\w){spelled}(?:s|ged|d)?(?!\w)"


def _value(parameter: Parameter, request: Request, today: date) -> Any:  # noqa: PLR0911 - one for each kind
    match parameter.kind:
        case Kind.CHOICE:
            return _choice(parameter.schema["enum"], request)
        case Kind.FLAG:
            return False if request.take(_NO) else True if request.take(_YES) else None
        case Kind.LIST:
            return _list(parameter.schema.get("items", {}), request)
        case Kind.DATE:
            if day := request.day(today):
                return day[0] if day[0] in parameter.description.lower() else day[1].isoformat()
            return request.payload() if request.is_answer and "format" not in parameter.schema else None
        case Kind.NUMBER | Kind.EMAIL | Kind.URL | Kind.MOMENT | Kind.IDENTIFIER:
            if match := request.take(_PATTERNS[parameter.kind]):
                return _as_number(parameter, match[1]) if parameter.kind is Kind.NUMBER else match[1]
            return _text(request).partition(" ")[0] if parameter.kind is Kind.IDENTIFIER and request.is_answer else None
        case Kind.ORIGIN | Kind.TARGET:
            return request.after(_PREPOSITIONS[parameter.kind]) or (request.payload() if request.is_answer else None)
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
    if element.kind in (Kind.FLAG, Kind.LIST, Kind.OTHER):
        return None
    if element.kind in (Kind.NUMBER, Kind.CHOICE):
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
    spoken = (Kind.TEXT, Kind.PLACE, Kind.TARGET, Kind.ORIGIN)
    due = [parameter for parameter in wanted if parameter.required and parameter.kind in spoken]
    optional = [parameter for parameter in wanted if not parameter.required and parameter.kind is Kind.TEXT]
    if len(due or optional) == 1:
        texts = [text for text in [request.payload() or request.quoted()] if text]
        due = due or (optional if texts else [])
    else:
        texts = [*iter(request.quoted, ""), *filter(None, [request.payload()])]
    if len(texts) < len(due) and (rest := request.rest(place=due[0].kind is Kind.PLACE, verbatim=verbatim)):
        texts.insert(0, rest)
    for parameter, text in zip(due, texts, strict=False):
        _put(arguments, parameter, text)


def _kind(name: str, schema: Mapping[str, Any]) -> Kind:
    if "enum" in schema:
        return Kind.CHOICE
    variants = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if variants:
        return _kind(name, {**variants[0], **{key: schema[key] for key in schema if key != "anyOf"}})
    types = schema.get("type", [])
    declared = next((name for name in ([types] if isinstance(types, str) else types) if name != "null"), "")
    if declared not in ("", "string") or types == "null":
        return _TYPES.get(declared, Kind.OTHER)
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    opening = set(request_terms(str(schema.get("description", ""))[:80])[:8])
    by_description = Kind.PLACE if _NAMES[Kind.PLACE] & opening and "email" not in opening else Kind.TEXT
    return next((kind for kind, names in _NAMES.items() if names & set(request_terms(name))), by_description)
