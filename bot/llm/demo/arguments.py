"""Arguments for a tool, found in the words of a request.

Required parameters are searched everywhere; optional ones are filled only if the request clearly names them. Values are
checked against the schema. A missing value is reported as missing, never invented.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date
from typing import Any

from bot.llm.demo.request_parser import ParsedRequest
from bot.llm.demo.schemas import ParameterType, ToolParameter, parameters
from bot.llm.demo.tokenizer import listed, plain_name, stem

_YES = re.compile(r"(?<!\w)(?:on|yes|true|enabled?|activated?)(?!\w)", re.IGNORECASE)
_NO = re.compile(r"(?<!\w)(?:off|no|false|disabled?|deactivated?)(?!\w)", re.IGNORECASE)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?")
_LIST = re.compile(r"\s*(?:,\s*and\s|,|;|&|\n|\u3001|\uff0c|\band\b)\s*", re.IGNORECASE)
_FROM = frozenset({"from"})
_TOWARDS = frozenset({"to", "into", "with", "for", "in"})
_LONG_TEXT = frozenset(map(stem, listed("text body content message description note comment query summary")))
_ORDER = [kind for kind in ParameterType if kind not in (ParameterType.PLACE, ParameterType.TEXT)] + [
    ParameterType.PLACE,
    ParameterType.TEXT,
]


@dataclass(frozen=True, slots=True)
class FilledArguments:
    """Arguments for one call, and the required parameters that nothing was found for."""

    arguments: Mapping[str, Any]
    missing: tuple[ToolParameter, ...] = ()


def fill(schema: Mapping[str, Any], request: str, claimed: Set[str], today: date) -> tuple[FilledArguments, ...]:
    """The arguments of the call a request asks for: one call, or several if it lists places for a single parameter."""
    wanted = parameters(schema)
    reading = ParsedRequest(request, claimed)
    arguments = dict(_named(wanted, reading, today))
    several: tuple[str, list[str]] = ("", [])
    for parameter in sorted(wanted, key=lambda each: (_ORDER.index(each.kind), not each.required)):
        if parameter.name in arguments or not (parameter.required or _obvious(parameter)):
            continue
        if parameter.kind is ParameterType.PLACE and not several[1]:
            several = (parameter.name, [place for place in reading.places() if parameter.accepts(place)])
            if several[1]:
                arguments[parameter.name] = several[1][0]
                continue
        if parameter.kind is not ParameterType.TEXT and parameter.kind is not ParameterType.PLACE:
            _put(arguments, parameter, _value(parameter, reading, today))
    _texts([each for each in wanted if each.name not in arguments], reading, arguments)
    filled = _complete(wanted, arguments)
    if filled.missing or len(several[1]) < 2:
        return (filled,)
    return tuple(FilledArguments({**filled.arguments, several[0]: place}) for place in several[1])


def fill_missing(schema: Mapping[str, Any], known: Mapping[str, Any], answer: str, today: date) -> FilledArguments:
    """The arguments of a call of which some are `known` and the person has just been asked for the others."""
    wanted = parameters(schema)
    arguments = {
        each.name: known[each.name] for each in wanted if each.name in known and each.accepts(known[each.name])
    }
    missing = [each for each in wanted if each.required and each.name not in arguments]
    arguments.update(_named(missing, ParsedRequest(answer, answer=True), today))
    left = [each for each in missing if each.name not in arguments]
    if len(left) == 1:
        _put(arguments, left[0], _value(left[0], ParsedRequest(answer, answer=True), today))
    return _complete(wanted, arguments)


def _complete(wanted: Sequence[ToolParameter], arguments: dict[str, Any]) -> FilledArguments:
    for parameter in wanted:
        if parameter.required and parameter.name not in arguments and "default" in parameter.schema:
            _put(arguments, parameter, parameter.schema["default"])
    return FilledArguments(arguments, tuple(each for each in wanted if each.required and each.name not in arguments))


def _put(arguments: dict[str, Any], parameter: ToolParameter, value: Any) -> None:
    if value is not None and value != "" and parameter.accepts(value):
        arguments[parameter.name] = value


def _obvious(parameter: ToolParameter) -> bool:
    """An optional parameter whose value cannot be mistaken for anything else when it stands in the text."""
    if parameter.kind is ParameterType.CHOICE:
        return not any(isinstance(choice, (bool, int, float)) for choice in parameter.choices)
    return parameter.kind in (ParameterType.DATE, ParameterType.EMAIL, ParameterType.URL, ParameterType.PLACE)


def _named(wanted: Sequence[ToolParameter], reading: ParsedRequest, today: date) -> dict[str, Any]:
    """Arguments that the text names: `title: Shopping`, `limit=5`, `limit 5`, `5 days`, `without drafts`."""
    found: dict[str, Any] = {}
    named = [(each, pattern) for each in wanted if (pattern := _name_pattern(each))]
    marks = []
    for parameter, pattern in named:
        if mark := re.search(rf"{pattern}\s*[:=\uff1a](?!//)\s*", reading.left, re.IGNORECASE):
            marks.append((mark.start(), mark.end(), parameter))
    marks.sort(key=lambda mark: mark[:2])
    ends = [start for start, _, _ in marks[1:]] + [len(reading.left)]
    for (start, after, parameter), until in zip(marks, ends, strict=False):
        text = reading.left[after : max(after, until)].strip(" \t\r\n,;")
        value = _value(parameter, ParsedRequest(text, answer=True), today)
        if value is not None and parameter.accepts(value):
            found[parameter.name] = value
            reading.blank(start, max(after, until))
    for parameter, pattern in named:
        if parameter.name not in found:
            _put(found, parameter, _named_without_colon(parameter, pattern, reading))
    return found


def _name_pattern(parameter: ToolParameter) -> str:
    names = parameter.words
    if not names:
        return ""
    *first, last = names
    spelled = r"[\s_-]{0,3}".join(re.escape(word) for word in [*first, last.removesuffix("s")])
    return rf"(?<!\w){spelled}(?:s|ged|d)?(?!\w)"


def _named_without_colon(parameter: ToolParameter, pattern: str, reading: ParsedRequest) -> Any:
    match parameter.kind:
        case ParameterType.NUMBER:
            number = r"([-+]?\d{1,15}(?:\.\d{1,6})?)(?![\w.]*\d)"
            found = reading.take(re.compile(rf"{pattern}\s+(?:of|is|to|number|no\.?)?\s*#?{number}", re.IGNORECASE))
            found = found or reading.take(re.compile(rf"(?<![\w.-]){number}\s+{pattern}", re.IGNORECASE))
            return _as_number(parameter, found.group(1)) if found else None
        case (
            ParameterType.TEXT
            | ParameterType.LIST
            | ParameterType.IDENTIFIER
            | ParameterType.PLACE
            | ParameterType.TARGET
            | ParameterType.ORIGIN
        ):
            found = reading.take(
                re.compile(rf'{pattern}\s+(?:is|of|to|as)?\s*["\u201c]([^"\u201d\n]+)["\u201d]', re.IGNORECASE)
            )
            return _value(parameter, ParsedRequest(found.group(1), answer=True), date.min) if found else None
        case ParameterType.FLAG:
            if reading.take(re.compile(rf"(?<!\w)(?:no|not|without)\s+{pattern}", re.IGNORECASE)):
                return False
            return True if reading.take(re.compile(rf"(?<!\w)(?:with|as|only)\s+{pattern}", re.IGNORECASE)) else None
        case _:
            return None


def _value(parameter: ToolParameter, reading: ParsedRequest, today: date) -> Any:
    match parameter.kind:
        case ParameterType.CHOICE:
            return _choice(parameter.choices, reading)
        case ParameterType.FLAG:
            return False if reading.take(_NO) else True if reading.take(_YES) else None
        case ParameterType.NUMBER:
            return _as_number(parameter, reading.number())
        case ParameterType.LIST:
            return _list(parameter, reading)
        case ParameterType.DATE:
            return _date(parameter, reading, today)
        case _:
            return _text(parameter.kind, reading)


def _text(kind: ParameterType, reading: ParsedRequest) -> str:
    match kind:
        case ParameterType.EMAIL:
            return reading.email()
        case ParameterType.URL:
            return reading.url()
        case ParameterType.IDENTIFIER:
            return reading.identifier() or _single_word(reading)
        case ParameterType.ORIGIN:
            return reading.after(_FROM) or reading.answered()
        case ParameterType.TARGET:
            return reading.after(_TOWARDS) or reading.answered()
        case _:
            return reading.quoted() or reading.payload() or reading.rest()


def _choice(choices: Sequence[Any], reading: ParsedRequest) -> Any:
    for choice in sorted((each for each in choices if each is not None), key=lambda each: -len(str(each))):
        if isinstance(choice, (dict, list)):
            continue
        spelled = {str(choice), plain_name(str(choice))} - {""}
        flags = 0 if len(str(choice)) == 1 else re.IGNORECASE
        pattern = "|".join(rf"(?:(?<!\w)|(?=[^\x00-\u02ff])){re.escape(each)}(?!\w)" for each in sorted(spelled))
        if pattern and reading.take(re.compile(pattern, flags)):
            return choice
    return choices[0] if len(choices) == 1 else None


def _as_number(parameter: ToolParameter, number: Any) -> Any:
    if isinstance(number, str):
        number = float(number) if "." in number else int(number)
    return int(number) if isinstance(number, float) and parameter.schema.get("type") == "integer" and number == int(
        number
    ) else number  # fmt: skip


def _list(parameter: ToolParameter, reading: ParsedRequest) -> Any:
    text = reading.payload() or reading.quoted() or reading.rest()
    pieces = [piece for piece in (part.strip(" \"'.") for part in _LIST.split(text)) if piece]
    match parameter.items.get("type"):
        case "integer" | "number":
            item = ToolParameter("", parameter.items, True, ParameterType.NUMBER)
            return [_as_number(item, ParsedRequest(piece, answer=True).number()) for piece in pieces] or None
        case "string" | None if "enum" in parameter.items:
            values = ToolParameter("", parameter.items, True, ParameterType.CHOICE).choices
            return [_choice(values, ParsedRequest(piece, answer=True)) for piece in pieces] or None
        case "string" | None:
            return pieces or None
        case _:
            return None


def _date(parameter: ToolParameter, reading: ParsedRequest, today: date) -> str | None:
    form = parameter.schema.get("format")
    if form == "date-time":
        moment = reading.take(_MOMENT)
        return moment.group() if moment else None
    if found := reading.day(today):
        word, day = found
        return word if word in parameter.explanation.lower() else day.isoformat()
    return None if form == "date" else reading.answered()


def _single_word(reading: ParsedRequest) -> str:
    text = reading.quoted() or reading.payload() or reading.rest()
    return text if text and not re.search(r"\s", text) else ""


def _texts(wanted: Sequence[ToolParameter], reading: ParsedRequest, arguments: dict[str, Any]) -> None:
    """Assign quoted text, the text after the colon and the rest of the sentence to the text parameters that still need
    a value.
    """
    texts = (ParameterType.TEXT, ParameterType.PLACE, ParameterType.TARGET, ParameterType.ORIGIN)
    due = [each for each in wanted if each.required and each.kind in texts]
    optional = [each for each in wanted if not each.required and each.kind is ParameterType.TEXT]
    if len(due or optional) == 1:
        payload = reading.payload()
        pool = [text] if (text := _unquoted(payload) or reading.quoted()) else []
        due = due or (optional if pool else [])
    else:
        pool = []
        while text := reading.quoted():
            pool.append(text)
        pool += [payload] if (payload := reading.payload()) else []
    if len(pool) < len(due) and (rest := reading.rest()):
        pool.insert(len(pool) if pool and _is_long(due[0]) else 0, rest)
    for parameter, text in zip(due, pool, strict=False):
        _put(arguments, parameter, text)


def _unquoted(text: str) -> str:
    inner = re.fullmatch(r"[\"\u201c\u300c']([^\"\u201c\u201d\u300d']*)[\"\u201d\u300d']", text)
    return inner.group(1) if inner else text


def _is_long(parameter: ToolParameter) -> bool:
    return any(stem(word) in _LONG_TEXT for word in parameter.words)
