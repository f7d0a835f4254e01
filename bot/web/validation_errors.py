"""What is wrong with the fields of a request, in words for whoever sent it: each field by its place in what was sent,
and what it takes instead. Called by `problems`; knows no subject.

What the library that checks says of itself is not told: only what kind of mistake it has found, and where. No sentence
repeats a value that was sent; a name that is not known here may be answered with the one it looks most like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from bot.commands.text_format import did_you_mean

Place = tuple[str | int, ...]

_MOST_FIELDS = 50
_LONGEST_NAME = 100
_OURS = "value_error"
"""What an error is called that a function of ours has raised, in words for people."""
_PREFIX = "Value error, "
_BETWEEN = re.compile(", | or ")
"""What stands between the words of `'a', 'b' or 'c'`."""

_TEXT, _TRUTH, _WHOLE, _NUMBER = "text", "true or false", "a whole number", "a number"
_LIST, _OBJECT = "a list", "a JSON object"
_KINDS: Mapping[str, str] = {
    "string_type": _TEXT,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "none_required": "null",
}
"""What a value has to be that is of another kind. Where a field takes several kinds there is an error of each."""
_LIMITS: Mapping[str, str] = {
    "missing": "It is missing.",
    "string_too_short": "It must have {min_length} or more characters.",
    "string_too_long": "It must be at most {max_length} characters long.",
    "string_pattern_mismatch": "It must match the regular expression {pattern}",
    "too_short": "It must have {min_length} or more entries.",
    "too_long": "It must have at most {max_length} entries.",
    "greater_than": "It must be more than {gt}.",
    "greater_than_equal": "It must be at least {ge}.",
    "less_than": "It must be less than {lt}.",
    "less_than_equal": "It must be at most {le}.",
    "enum": "It must be one of: {expected}.",
    "literal_error": "It must be one of: {expected}.",
    "int_parsing_size": "It must be a whole number with fewer digits.",
    "finite_number": "It must be a number that is not infinite.",
}
_UNTHOUGHT_OF = "It cannot be used as it is."


def validation_errors(found: Sequence[Mapping[str, Any]], body: object, shape: object) -> dict[str, str]:
    """A sentence on each field, by its place, of what pydantic has found (`ValidationError.errors`) in a request.
    `body` is what was sent, and `shape` the type it should have had, None if nobody knows.
    """
    by_place: dict[Place, list[Mapping[str, Any]]] = {}
    for each in found[:_MOST_FIELDS]:
        by_place.setdefault(_place(each, body), []).append(each)
    # A list with a mistake inside is no text either, which is not what is wrong where a field takes text or a list.
    around = {place[:length] for place in by_place for length in range(len(place))}
    return {
        ".".join(map(str, place[1:]))[:_LONGEST_NAME] or "body": _told(errors, place[1:], shape)
        for place, errors in by_place.items()
        if place not in around
    }


def _place(error: Mapping[str, Any], body: object) -> Place:
    """Where a mistake is: in the body, the query, the path or a header, and where there. Of a body, pydantic puts the
    types that a field may have among the names, and they are left out.
    """
    source, *names = error["loc"]
    if source != "body":
        return tuple(error["loc"])
    place: list[str | int] = [source]
    value = body
    for name in names:
        match value:
            case dict() if name in value:
                value = value[name]
            case list() if isinstance(name, int) and name < len(value):
                value = value[name]
            case dict() if name == names[-1] and error["type"] == "missing":
                pass
            case _:
                continue
        place.append(name)
    return tuple(place)


def _told(errors: Sequence[Mapping[str, Any]], place: Place, shape: object) -> str:
    """What is wrong at one place. An error that is not about the kind of a value says more: the kind was right."""
    kinds = [_KINDS[each["type"]] for each in errors if each["type"] in _KINDS]
    if len(kinds) == len(errors):
        return f"It must be {' or '.join(dict.fromkeys(kinds))}."
    error = next(each for each in errors if each["type"] not in _KINDS)
    if error["type"] == "extra_forbidden":
        return f"It is not known here.{did_you_mean(str(place[-1]), _known(shape, place[:-1]))}"
    if error["type"] == _OURS:
        return _sentence(str(error["msg"]).removeprefix(_PREFIX))
    return _limit(error["type"], error.get("ctx", {}))


def _limit(kind: str, limits: Mapping[str, Any]) -> str:
    """What is wrong with a value of the right kind, or with none. Limits are the program's own: nothing that was sent
    is among those that are named.
    """
    shown = {name: f"{each:,.15g}" if isinstance(each, int | float) else str(each) for name, each in limits.items()}
    if "expected" in shown:
        shown["expected"] = ", ".join(each.strip("'") for each in _BETWEEN.split(shown["expected"]))
    return _LIMITS.get(kind, _UNTHOUGHT_OF).format_map(shown)


def _sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:]}{'' if said.endswith(('.', '?')) else '.'}"


def _known(shape: object, place: Place) -> Iterable[str]:
    """The names of all fields there may be at a place."""
    shapes = [*_models(shape)]
    for name in place:
        shapes = [each for one in shapes for each in _inside(one, name)]
    return [name for each in shapes for field, info in each.model_fields.items() for name in _names(field, info)]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that are, or are in, a type: in a union, a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _inside(model: type[BaseModel], name: str | int) -> Iterator[type[BaseModel]]:
    """The models in a field. A place in a list leads to what the list is of, which `_models` has looked through."""
    if isinstance(name, int):
        yield model
    for field, info in model.model_fields.items():
        if name in (field, *_names(field, info)):
            yield from _models(info.annotation)


def _names(field: str, info: FieldInfo) -> Sequence[str]:
    """What a field is called in a request."""
    match info.validation_alias:
        case AliasChoices(choices=choices):
            return [each for each in choices if isinstance(each, str)]
        case str(alias):
            return [alias]
        case _:
            return [field]
