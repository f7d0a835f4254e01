"""A tool's parameters, read from a JSON schema for the demo.

The schema is untrusted and may be any JSON. An unknown form becomes a parameter without a type, never an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from bot.llm.demo.tokenizer import listed, name_terms, plain_name, stem, terms

# -------------------- schema values
# Whether a value keeps to a JSON schema: its type, its choices and its bounds.
#
# As much of JSON schema as the demo needs so as not to send what a server must refuse. The schema is untrusted: what
# makes no sense in it is no bound. Patterns are left to the server, because a hostile one could run for ever.

_SCHEMA_VALUES_TYPES: Mapping[str, tuple[type, ...]] = {
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
    """Return True if a value has the type of a schema and keeps its bounds."""
    allowed = choices(schema)
    if allowed and not any(type(value) is type(each) and value == each for each in allowed):
        return False
    return _has_type(schema, value) and _keeps_bounds(schema, value) and _keeps_sizes(schema, value)


def _has_type(schema: Mapping[str, Any], value: Any) -> bool:
    declared = schema.get("type")
    if not isinstance(declared, str) or declared not in _SCHEMA_VALUES_TYPES:
        return True
    return isinstance(value, _SCHEMA_VALUES_TYPES[declared]) and (declared == "boolean" or not isinstance(value, bool))


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


_DEPTH = 8


class ParameterType(Enum):
    """Kind of words that a parameter takes."""

    CHOICE = auto()
    FLAG = auto()
    NUMBER = auto()
    LIST = auto()
    DATE = auto()
    EMAIL = auto()
    URL = auto()
    IDENTIFIER = auto()
    PLACE = auto()
    ORIGIN = auto()
    TARGET = auto()
    TEXT = auto()
    OTHER = auto()


_PLACES = frozenset(map(stem, listed("place city town location country region station area address room")))
_NAMED_KINDS = (
    (
        ParameterType.IDENTIFIER,
        frozenset(map(stem, listed("id key number no code ref reference identifier slug uuid index"))),
    ),
    (ParameterType.DATE, frozenset(map(stem, listed("date day when due deadline")))),
    (ParameterType.EMAIL, frozenset({"email"})),
    (ParameterType.URL, frozenset({"url", "uri", "link"})),
    (ParameterType.ORIGIN, frozenset(map(stem, listed("from source origin src departure")))),
    (
        ParameterType.TARGET,
        frozenset(map(stem, listed("to target destination dest into arrival recipient assignee channel"))),
    ),
    (ParameterType.PLACE, _PLACES),
)
_FORMATS = {
    "date": ParameterType.DATE,
    "date-time": ParameterType.DATE,
    "email": ParameterType.EMAIL,
    "uri": ParameterType.URL,
    "url": ParameterType.URL,
}
_TYPES = {
    "boolean": ParameterType.FLAG,
    "integer": ParameterType.NUMBER,
    "number": ParameterType.NUMBER,
    "array": ParameterType.LIST,
}


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter. `schema` has its references resolved; `type` is empty where the schema names none."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    kind: ParameterType

    @property
    def words(self) -> tuple[str, ...]:
        """The name as lower-case words."""
        return tuple(plain_name(self.name).split())

    @property
    def explanation(self) -> str:
        """Return the description of a parameter, else its title, as one short line; empty if it has neither."""
        for key in ("description", "title"):
            value = self.schema.get(key)
            if isinstance(value, str) and value.strip():
                line = " ".join(value.split())
                return line if len(line) <= 160 else line[:159] + "…"
        return ""

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values, if the schema lists them."""
        return choices(self.schema)

    @property
    def items(self) -> Mapping[str, Any]:
        """The schema of a list's items."""
        items = self.schema.get("items")
        return items if isinstance(items, Mapping) else {}

    def accepts(self, value: Any) -> bool:
        """Return True if a value has the type of the parameter's schema and keeps its bounds."""
        return is_valid(self.schema, value)


def parameters(schema: Mapping[str, Any]) -> tuple[ToolParameter, ...]:
    """The parameters of a tool: the required ones first, in the order the schema names them."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    listed = required if isinstance(required, Sequence) and not isinstance(required, str) else ()
    names = [name for name in listed if isinstance(name, str)]
    optional = [name for name in properties if isinstance(name, str) and name not in names]
    found = []
    for name in dict.fromkeys([*names, *optional]):
        resolved = resolve(properties.get(name), schema)
        found.append(ToolParameter(name, resolved, name in names, _kind(name, resolved)))
    return tuple(found)


def resolve(schema: Any, root: Any, depth: int = 0) -> Mapping[str, Any]:
    """The schema with local references followed, its items' too, and the first alternative that is not null chosen."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return {}
    outer = {key: value for key, value in schema.items() if key not in ("$ref", "anyOf", "oneOf", "allOf")}
    inner: Mapping[str, Any] = {}
    if isinstance(reference := schema.get("$ref"), str):
        inner = resolve(_lookup(root, reference), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        variants = schema.get(key)
        if isinstance(variants, Sequence) and not isinstance(variants, str):
            usable = [variant for variant in variants if isinstance(variant, Mapping) and variant.get("type") != "null"]
            inner = {**inner, **(resolve(usable[0], root, depth + 1) if usable else {})}
    merged = {**inner, **outer}
    if isinstance(merged.get("type"), Sequence) and not isinstance(merged.get("type"), str):
        merged["type"] = next((each for each in merged["type"] if isinstance(each, str) and each != "null"), "null")
    if isinstance(merged.get("items"), Mapping):
        merged["items"] = resolve(merged["items"], root, depth + 1)
    return merged


def _lookup(root: Any, reference: str) -> Any:
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        root = root.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root


def _kind(name: str, schema: Mapping[str, Any]) -> ParameterType:
    if choices(schema):
        return ParameterType.CHOICE
    declared = schema.get("type")
    if isinstance(declared, str) and declared in _TYPES:
        return _TYPES[declared]
    if declared not in (None, "string"):
        return ParameterType.OTHER
    if isinstance(form := schema.get("format"), str) and form in _FORMATS:
        return _FORMATS[form]
    return _kind_by_words(name, schema)


def _kind_by_words(name: str, schema: Mapping[str, Any]) -> ParameterType:
    called = set(name_terms(name))
    for kind, telling in _NAMED_KINDS:
        if called & telling:
            return kind
    description = schema.get("description")
    opening = terms(description[:80])[:6] if isinstance(description, str) else []
    return ParameterType.PLACE if _PLACES & set(opening) and "email" not in opening else ParameterType.TEXT
