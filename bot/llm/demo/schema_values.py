"""Whether a value keeps to a JSON schema: its type, its choices and its bounds.

As much of JSON schema as the demo needs so as not to send what a server must refuse. The schema is untrusted: what
makes no sense in it is no bound. Patterns are left to the server, because a hostile one could run for ever.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
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
}
_SIZES: Mapping[str, tuple[type[str] | type[list[Any]], Callable[[Any, Any], bool]]] = {
    "minLength": (str, operator.ge),
    "maxLength": (str, operator.le),
    "minItems": (list, operator.ge),
    "maxItems": (list, operator.le),
}


def choices(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values a schema allows, if it lists them."""
    if "const" in schema:
        return (schema["const"],)
    values = schema.get("enum")
    return tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value has the type a schema asks for and keeps its bounds."""
    allowed = choices(schema)
    if allowed and not any(type(value) is type(each) and value == each for each in allowed):
        return False
    return _has_type(schema, value) and _keeps_bounds(schema, value) and _keeps_sizes(schema, value)


def _has_type(schema: Mapping[str, Any], value: Any) -> bool:
    declared = schema.get("type")
    if not isinstance(declared, str) or declared not in _TYPES:
        return True
    return isinstance(value, _TYPES[declared]) and (declared == "boolean" or not isinstance(value, bool))


def _keeps_bounds(schema: Mapping[str, Any], value: Any) -> bool:
    if not _is_number(value):
        return True
    step: Any = schema.get("multipleOf")
    if _is_number(step) and step > 0 and value % step != 0:
        return False
    return all(keeps(value, schema[name]) for name, keeps in _BOUNDS.items() if _is_number(schema.get(name)))


def _keeps_sizes(schema: Mapping[str, Any], value: Any) -> bool:
    for name, (measured, keeps) in _SIZES.items():
        if isinstance(value, measured) and _is_number(schema.get(name)) and not keeps(len(value), schema[name]):
            return False
    if not isinstance(value, list):
        return True
    if schema.get("uniqueItems") is True and len({repr(each) for each in value}) != len(value):
        return False
    items = schema.get("items")
    return not isinstance(items, Mapping) or all(is_valid(items, each) for each in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
