"""Arguments for a tool, found in the words of a request.

Required parameters are searched everywhere; optional ones are filled only if the request clearly names them. Values are
checked against the schema. A missing value is reported as missing, never invented.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from enum import Enum, auto
from typing import Any

from bot.domain.tokenizer import stem, words
from bot.llm.demo.request import Request, plain_name, request_terms, stems
from bot.llm.tool_schemas import tool_schema

_ANY_NAME = re.compile(r"(?s).*")
_YES = re.compile(r"(?<!\w)(?:on|yes|true|enabled?|activated?)(?!\w)", re.IGNORECASE)
_NO = re.compile(r"(?<!\w)(?:off|no|false|disabled?|deactivated?)(?!\w)", re.IGNORECASE)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_URL = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]")
_IDENTIFIER = re.compile(r"#?((?<![\w-])(?=[\w-]{0,40}\d)[\w-]{1,64})(?!\w)")
_SEPARATORS = re.compile(r"\s*(?:,\s*and\s|,|;|&|\n|\u3001|\uff0c|\band\b)\s*", re.IGNORECASE)
_QUOTES = re.compile(r"[\"\u201c\u300c']([^\"\u201c\u201d\u300d']*)[\"\u201d\u300d']")
_NUMBER = r"([-+]?\d{1,15}(?:\.\d{1,6})?)(?![\w.]*\d)"
_LIMITS = stems("limit count max maximum top most size")
_LAST = re.compile(r"\b(?:last|first|latest|newest|top)\s+(\d{1,4})\b", re.IGNORECASE)
_LONG_TEXT = stems("text body content message description note comment query summary")


class Kind(Enum):
    """Kind of words that a parameter takes, in the order in which parameters are filled."""

    DATE = auto()
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


_SPOKEN = (Kind.TEXT, Kind.PLACE, Kind.TARGET, Kind.ORIGIN)
_OBVIOUS = (Kind.DATE, Kind.EMAIL, Kind.URL, Kind.PLACE)
_NAMES = {
    Kind.IDENTIFIER: "id key number no code ref reference identifier slug uuid index",
    Kind.DATE: "date day when due deadline",
    Kind.EMAIL: "email",
    Kind.URL: "url uri link",
    Kind.ORIGIN: "from source origin src departure",
    Kind.TARGET: "to target destination dest into arrival recipient assignee channel",
    Kind.PLACE: "place city town location country region station area address room",
}
_NAME_TERMS = {kind: stems(names) for kind, names in _NAMES.items()}
_FORMATS = {"date": Kind.DATE, "date-time": Kind.DATE, "email": Kind.EMAIL, "uri": Kind.URL, "url": Kind.URL}
_TYPES = {"boolean": Kind.FLAG, "integer": Kind.NUMBER, "number": Kind.NUMBER, "array": Kind.LIST}
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "multipleOf": lambda value, step: value % step == 0,
    "minLength": lambda value, least: len(value) >= least,
    "maxLength": lambda value, most: len(value) <= most,
    "minItems": lambda value, least: len(value) >= least,
    "maxItems": lambda value, most: len(value) <= most,
    "uniqueItems": lambda value, _: len(set(map(repr, value))) == len(value),
    "items": lambda value, schema: all(_accepts(schema, item) for item in value),
}
_BOUNDS_BY_TYPE: Mapping[type, tuple[str, ...]] = {
    int: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    float: ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    str: ("minLength", "maxLength"),
    list: ("minItems", "maxItems", "uniqueItems", "items"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """One parameter of a tool."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    kind: Kind

    @property
    def words(self) -> list[str]:
        """The name as lower-case words."""
        return plain_name(self.name).split()

    @property
    def description(self) -> str:
        """The description; empty if there is none."""
        return str(self.schema.get("description", ""))

    def accepts(self, value: Any) -> bool:
        """Return True if a value has the type of the parameter's schema and keeps its bounds."""
        return _accepts(self.schema, value)


@dataclass(frozen=True, slots=True)
class FilledArguments:
    """Arguments for one call, and the required parameters without a value."""

    arguments: Mapping[str, Any]
    missing: tuple[Parameter, ...] = ()


def parameters(schema: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """Return the parameters of a tool: the required ones first, in the order of the schema."""
    simple = tool_schema(schema, _ANY_NAME)
    properties, required = simple["properties"], simple.get("required", ())
    names = dict.fromkeys([*required, *properties])
    return tuple(Parameter(name, properties[name], name in required, _kind(name, properties[name])) for name in names)


def fill(schema: Mapping[str, Any], request: str, claimed: Set[str], today: date) -> tuple[FilledArguments, ...]:
    """Return the arguments of the call that a request asks for: one call, or several if it lists places for a single
    parameter.
    """
    return _fill(parameters(schema), Request(request, claimed), today, {})


def fill_changed(
    schema: Mapping[str, Any], previous: Mapping[str, Any], request: str, claimed: Set[str], today: date
) -> tuple[FilledArguments, ...]:
    """Return the arguments of a call like the `previous` one, with other values where the request has them."""
    return _fill(parameters(schema), Request(request, claimed), today, previous)


def fill_missing(schema: Mapping[str, Any], previous: Mapping[str, Any], answer: str, today: date) -> FilledArguments:
    """Return the arguments of a call whose missing ones the user has just been asked for."""
    wanted = parameters(schema)
    arguments = {name: value for name, value in previous.items() if any(parameter.name == name for parameter in wanted)}
    missing = [parameter for parameter in wanted if parameter.required and parameter.name not in arguments]
    arguments |= _named(missing, Request(answer, answer=True), today)
    left = [parameter for parameter in missing if parameter.name not in arguments]
    if len(left) == 1:
        _put(arguments, left[0], _value(left[0], Request(answer, answer=True), today))
    return _complete(wanted, arguments)


def _fill(
    wanted: Sequence[Parameter], request: Request, today: date, previous: Mapping[str, Any]
) -> tuple[FilledArguments, ...]:
    arguments = _named(wanted, request, today)
    places: list[str] = []
    place_name = ""
    for parameter in sorted(wanted, key=lambda parameter: (parameter.kind.value, not parameter.required)):
        if parameter.name in arguments or parameter.kind is Kind.TEXT:
            continue
        if parameter.kind is Kind.PLACE and not places:
            place_name, places = parameter.name, [place for place in request.places() if parameter.accepts(place)]
            if places:
                arguments[place_name] = _as_described(parameter, places[0])
        elif parameter.kind is Kind.NUMBER and not parameter.required:
            _put(arguments, parameter, _implied_number(parameter, request, today))
        elif parameter.required or _is_obvious(parameter):
            _put(arguments, parameter, _value(parameter, request, today))
    _fill_texts([parameter for parameter in wanted if parameter.name not in arguments], request, arguments)
    filled = _complete(wanted, {**previous, **arguments})
    if filled.missing or len(places) < 2:
        return (filled,)
    return tuple(FilledArguments({**filled.arguments, place_name: place}) for place in places)


def _complete(wanted: Sequence[Parameter], arguments: dict[str, Any]) -> FilledArguments:
    for parameter in wanted:
        if parameter.required and parameter.name not in arguments:
            _put(arguments, parameter, parameter.schema.get("default"))
    return FilledArguments(
        arguments, tuple(parameter for parameter in wanted if parameter.required and parameter.name not in arguments)
    )


def _put(arguments: dict[str, Any], parameter: Parameter, value: Any) -> None:
    if value is not None and value != "" and parameter.accepts(value):
        arguments[parameter.name] = value


def _is_obvious(parameter: Parameter) -> bool:
    """Return True if words for the parameter cannot mean anything else."""
    if parameter.kind is Kind.CHOICE:
        return all(isinstance(choice, str | None) for choice in parameter.schema["enum"])
    return parameter.kind in _OBVIOUS


def _named(wanted: Iterable[Parameter], request: Request, today: date) -> dict[str, Any]:
    """Return the arguments that the text names: `title: Shopping`, `limit=5`, `limit 5`, `5 days`, `without drafts`."""
    named = {parameter: pattern for parameter in wanted if (pattern := _name_pattern(parameter))}
    marks = sorted(
        (mark.span(), parameter.name, parameter)
        for parameter, pattern in named.items()
        if (mark := re.search(rf"{pattern}\s*[:=\uff1a](?!//)\s*", request.left, re.IGNORECASE))
    )
    ends = [start for (start, _), *_ in marks[1:]] + [len(request.left)]
    arguments: dict[str, Any] = {}
    for ((start, after), _, parameter), until in zip(marks, ends, strict=False):
        end = max(after, until)
        _put(arguments, parameter, _value(parameter, _answer(request.left[after:end].strip(" \t\r\n,;")), today))
        if parameter.name in arguments:
            request.blank(start, end)
    for parameter, pattern in named.items():
        if parameter.name not in arguments:
            _put(arguments, parameter, _named_without_colon(parameter, pattern, request))
    return arguments


def _answer(text: str) -> Request:
    return Request(text, answer=True)


def _name_pattern(parameter: Parameter) -> str:
    if not parameter.words:
        return ""
    *first, last = parameter.words
    spelled = r"[\s_-]{0,3}".join(re.escape(word) for word in [*first, last.removesuffix("s")])
    return rf"(?<!\w){spelled}(?:s|ged|d)?(?!\w)"


def _named_without_colon(parameter: Parameter, pattern: str, request: Request) -> Any:
    match parameter.kind:
        case Kind.NUMBER:
            after = re.compile(rf"{pattern}\s+(?:of|is|to|number|no\.?)?\s*#?{_NUMBER}", re.IGNORECASE)
            before = re.compile(rf"(?<![\w.-]){_NUMBER}\s+{pattern}", re.IGNORECASE)
            number = request.take(after) or request.take(before)
            return _as_number(parameter.schema, number[1]) if number else None
        case Kind.FLAG:
            if request.take(re.compile(rf"(?<!\w)(?:no|not|without)\s+{pattern}", re.IGNORECASE)):
                return False
            return True if request.take(re.compile(rf"(?<!\w)(?:with|as|only)\s+{pattern}", re.IGNORECASE)) else None
        case Kind.TEXT | Kind.LIST | Kind.IDENTIFIER | Kind.PLACE | Kind.TARGET | Kind.ORIGIN:
            quotation = rf'{pattern}\s+(?:is|of|to|as)?\s*["\u201c]([^"\u201d\n]+)["\u201d]'
            quoted = request.take(re.compile(quotation, re.IGNORECASE))
            return _value(parameter, _answer(quoted[1]), date.min) if quoted else None
        case _:
            return None


def _value(parameter: Parameter, request: Request, today: date) -> Any:  # noqa: PLR0911 - one for each kind
    match parameter.kind:
        case Kind.CHOICE:
            return _choice(parameter.schema["enum"], request)
        case Kind.FLAG:
            return False if request.take(_NO) else True if request.take(_YES) else None
        case Kind.NUMBER:
            return _as_number(parameter.schema, request.number())
        case Kind.LIST:
            return _list(parameter.schema.get("items", {}), request)
        case Kind.DATE:
            return _date(parameter, request, today)
        case Kind.EMAIL | Kind.URL:
            match = request.take(_EMAIL if parameter.kind is Kind.EMAIL else _URL)
            return match.group() if match else None
        case Kind.IDENTIFIER:
            match = request.take(_IDENTIFIER)
            text = match[1] if match else _text(request)
            return text if not re.search(r"\s", text) else None
        case Kind.ORIGIN | Kind.TARGET:
            prepositions = {"from"} if parameter.kind is Kind.ORIGIN else {"to", "into", "with", "for", "in"}
            return request.after(prepositions) or (request.payload() if request.is_answer else None)
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


def _as_number(schema: Mapping[str, Any], number: Any) -> Any:
    if isinstance(number, str):
        number = float(number) if "." in number else int(number)
    whole = isinstance(number, float) and "integer" in str(schema.get("type")) and number.is_integer()
    return int(number) if whole else number


def _list(items: Mapping[str, Any], request: Request) -> list[Any] | None:
    text = request.payload() or request.quoted() or request.rest()
    pieces = [piece for part in _SEPARATORS.split(text) if (piece := part.strip(" \"'."))]
    match _kind("", items):
        case Kind.NUMBER:
            return [_as_number(items, _answer(piece).number()) for piece in pieces] or None
        case Kind.CHOICE:
            return [_choice(items["enum"], _answer(piece)) for piece in pieces] or None
        case Kind.FLAG | Kind.LIST | Kind.OTHER:
            return None
        case _:
            return pieces or None


def _date(parameter: Parameter, request: Request, today: date) -> str | None:
    form = parameter.schema.get("format")
    if form == "date-time":
        moment = request.take(_MOMENT)
        return moment.group() if moment else None
    if day := request.day(today):
        word, first, _ = day
        return word if word in parameter.description.lower() else first.isoformat()
    return request.payload() if request.is_answer and form != "date" else None


def _implied_number(parameter: Parameter, request: Request, today: date) -> int | None:
    """Return the number for a parameter such as `limit`, after `the last`, or for one such as `days`, up to a day."""
    if not _LIMITS.isdisjoint(map(stem, parameter.words)) and (match := request.take(_LAST)):
        return int(match[1])
    return _day_count(parameter, request, today)


def _day_count(parameter: Parameter, request: Request, today: date) -> int | None:
    """Return the number of days up to a weekday or weekend, for a parameter such as `days`."""
    if not {"day"} & set(map(stem, parameter.words)) or not (day := request.day(today)):
        return None
    word, _, last = day
    count = (last - today).days + 1
    return count if count > 2 and count > parameter.schema.get("default", 0) and not word.startswith("2") else None


def _fill_texts(wanted: Sequence[Parameter], request: Request, arguments: dict[str, Any]) -> None:
    """Assign quoted text, the text after the colon and the rest of the sentence to the text parameters that still need
    a value.
    """
    due = [parameter for parameter in wanted if parameter.required and parameter.kind in _SPOKEN]
    optional = [parameter for parameter in wanted if not parameter.required and parameter.kind is Kind.TEXT]
    texts: list[str] = []
    if len(due or optional) == 1:
        payload = request.payload()
        quotation = _QUOTES.fullmatch(payload)
        if text := (quotation[1] if quotation else payload) or request.quoted():
            texts, due = [text], due or optional
    else:
        texts = [*iter(request.quoted, ""), *filter(None, [request.payload()])]
    if len(texts) < len(due) and (rest := request.rest(place=due[0].kind is Kind.PLACE)):
        is_long = not _LONG_TEXT.isdisjoint(map(stem, due[0].words))
        texts.insert(len(texts) if texts and is_long else 0, rest)
    for parameter, text in zip(due, texts, strict=False):
        _put(arguments, parameter, text)


def _as_described(parameter: Parameter, place: str) -> str:
    """Return the name in the parameter's description that the place is a misspelling of, or the place itself."""
    names = [word.text for word in words(parameter.description) if word.text[:1].isupper()]
    close = get_close_matches(place.capitalize(), names, 1, 0.8)
    return close[0] if close and place not in names else place


def _kind(name: str, schema: Mapping[str, Any]) -> Kind:  # noqa: PLR0911 - one for each rule
    if "enum" in schema:
        return Kind.CHOICE
    variants = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if variants:
        return _kind(name, {**variants[0], **{key: schema[key] for key in schema if key != "anyOf"}})
    types = _types(schema)
    declared = next((name for name in types if name != "null"), "null" if types else "")
    if declared in _TYPES:
        return _TYPES[declared]
    if declared and declared != "string":
        return Kind.OTHER
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    terms = set(request_terms(name))
    for kind, names in _NAME_TERMS.items():
        if terms & names:
            return kind
    opening = request_terms(str(schema.get("description", ""))[:80])[:6]
    return Kind.PLACE if _NAME_TERMS[Kind.PLACE] & set(opening) and "email" not in opening else Kind.TEXT


def _accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """Return True if a value keeps a schema that `tool_schema` has simplified."""
    types = _types(schema)
    if types and not any(_has_type(value, name) for name in types):
        return False
    if "enum" in schema and not any(type(value) is type(choice) and value == choice for choice in schema["enum"]):
        return False
    if "anyOf" in schema and not any(_accepts(variant, value) for variant in schema["anyOf"]):
        return False
    bounds = _BOUNDS_BY_TYPE.get(type(value), ())
    return all(_BOUNDS[name](value, schema[name]) for name in bounds if name in schema)


def _has_type(value: Any, name: str) -> bool:
    return isinstance(value, _PYTHON_TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _types(schema: Mapping[str, Any]) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types
