"""Two schemas as one: what fits both, and what fits either.

Called by `schema_simplify` and `tool_schemas`, with schemas that have been read, so that only the keywords of `ORDER`
are in them. A result may allow a little more than it should, never less: the server's own schema judges later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Schema = dict[str, Any]

ORDER = (
    *("type", "description", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "default"),
)
"""Every keyword that is ever sent, in the order in which it is: the same schema is always the same text."""
_STRICTER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
_TYPES_OF: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
    type(None): {"null"},
}
_ABOUT = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "array": {"items", "minItems", "maxItems", "uniqueItems"},
}
"""Keywords that speak of one type only."""
_SAYS_NOTHING = frozenset({"description", "default"})


def text_of(value: Any) -> str:
    """A JSON value as short text, its keys in their own order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def types_of(schema: Schema) -> list[str]:
    """The names of the types that fit, none if all do."""
    given = schema.get("type", [])
    return [given] if isinstance(given, str) else list(given)


def fits_all(schema: Schema) -> bool:
    """Whether there is nothing that does not fit."""
    return schema.keys() <= _SAYS_NOTHING


def distinct(schemas: Iterable[Schema]) -> list[Schema]:
    """The schemas, each once."""
    return list({text_of(each): each for each in schemas}.values())


def either(schemas: Sequence[Schema]) -> Schema:
    """What fits one of them."""
    if not schemas or any(map(fits_all, schemas)):
        return {}
    different = distinct(schemas)
    return different[0] if len(different) == 1 else {"anyOf": different}


def both(one: Schema, other: Schema) -> Schema:
    """What fits both. Where only one of two words can stand, it is the first one's."""
    merged = {**other, **one}
    for keyword in one.keys() & other.keys():
        merged[keyword] = _both(keyword, one[keyword], other[keyword])
    types = _common(types_of(one), types_of(other))
    if types:
        merged["type"] = types[0] if len(types) == 1 else types
    merged.pop("additionalProperties", None)
    if (rest := _rest(one, other)) is not None:
        merged["additionalProperties"] = rest
    return completed(merged)


def completed(schema: Schema) -> Schema:
    """With everything that services miss, properties of objects and items of arrays, and without what they stumble
    over: values of other types, required names that are not there. An object of which nothing is known says that it
    is open, because guided decoders take it for an empty one otherwise.
    """
    types = types_of(schema)
    idle = {keyword for kind, about in _ABOUT.items() if types and kind not in types for keyword in about}
    whole = {keyword: value for keyword, value in schema.items() if keyword not in idle}
    if "object" in types and not whole.get("properties"):
        whole["properties"] = {}
        whole.setdefault("additionalProperties", True)
    if "array" in types:
        whole.setdefault("items", {})
    values = [value for value in whole.pop("enum", ()) if not types or _TYPES_OF[type(value)] & set(types)]
    if values:
        whole["enum"] = values
    required = [name for name in whole.pop("required", ()) if name in whole.get("properties", {})]
    if required:
        whole["required"] = required
    return {keyword: whole[keyword] for keyword in ORDER if keyword in whole}


def _both(keyword: str, one: Any, other: Any) -> Any:
    match keyword:
        case "properties":
            shared = {name: both(one[name], other[name]) for name in one.keys() & other.keys()}
            return {name: shared.get(name, schema) for name, schema in {**one, **other}.items()}
        case "required":
            return list(dict.fromkeys((*one, *other)))
        case "items":
            return both(one, other)
        case "enum":
            allowed = set(map(text_of, other))
            return [value for value in one if text_of(value) in allowed] or one
        case _:
            return _STRICTER.get(keyword, lambda first, _: first)(one, other)


def _common(one: list[str], other: list[str]) -> list[str]:
    if not (one and other):
        return one or other
    common = [name for name in one if name in other or (name == "integer" and "number" in other)]
    if "number" in one and "integer" in other and not {"number", "integer"} & set(common):
        common.append("integer")
    return common or one


def _rest(one: Schema, other: Schema) -> Any:
    """What fits properties that neither names, None where that cannot be said in one word."""
    mine, theirs = (each.get("additionalProperties") for each in (one, other))
    if mine == theirs:
        return mine
    if theirs in (None, True) and not other.get("properties"):
        return mine
    if mine in (None, True) and not one.get("properties"):
        return theirs
    return None
