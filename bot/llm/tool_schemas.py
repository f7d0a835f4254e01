"""Tool definitions for model requests: a name, a description and a schema that every provider accepts.

Servers list JSON Schema of any draft. Providers read less of it, and reject a whole request because of one schema. The
copy made here is for the model alone: arguments are validated by the server's own schema. So the copy may allow more
than the original, never less.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from bot.domain.characters import visible
from bot.domain.tools import Tool
from bot.llm.wire_values import replace_surrogates

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
LONGEST_DESCRIPTION = 1024
"""Characters (OpenAI's limit for a function; more than that is rarely about the tool)."""
LARGEST_SCHEMA = 16_384
"""Limit in characters of JSON. A larger schema loses descriptions first, then depth."""
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
FORMATS = frozenset({"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
"""The formats that both vendors document."""

_LONGEST_NOTES = 500
_LONGEST_NOTE = 200
MOST_NODES = 1000
_MOST_REFERENCES = 8
"""Limit of references in a chain."""
_MOST_PROPERTIES = 200
_MOST_BRANCHES = 50
_MOST_VALUES = 200
_LARGEST_VALUE = 300
_LARGEST_NUMBER = 2**53

_WITHIN = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items", "prefixItems"}
)
"""Keywords whose schemas lie deeper than their own."""
_IN_WORDS = (
    *("pattern", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains"),
    *("minContains", "maxContains", "patternProperties", "propertyNames", "contentEncoding", "contentMediaType"),
    "examples",
)
"""Keywords that are described in words: some services reject them (a `pattern` in another dialect), and few obey them.
"""
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_OF_ROOT = ("type", "description", "properties", "required", "additionalProperties")
_EMPTY: Schema = {"type": "object", "properties": {}}


def tool_description(tool: Tool) -> str:
    """Return the server's description of the tool, within 1,024 characters."""
    return truncate(visible(tool.description), LONGEST_DESCRIPTION)


def tool_schema(schema: Mapping[str, Any], keys: re.Pattern[str]) -> Schema:
    """The schema for a service that takes names of properties which match `keys` as a whole.

    It is an object without references, unions at its root, or keywords that services disagree about, of at most
    16,384 characters. The same schema gives the same text, and a schema that came out of here comes out unchanged.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False, default=dict)
    except (ValueError, RecursionError):
        return dict(_EMPTY)
    return _offered(text, keys)


def text_of(value: Any) -> str:
    """A JSON value as short text, its keys in their own order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def types_of(schema: Schema) -> list[str]:
    """The names of the types that fit, none if all do."""
    given = schema.get("type", [])
    return [given] if isinstance(given, str) else list(given)


def fits_all(schema: Schema) -> bool:
    """Return True if the schema accepts every value."""
    return schema.keys() <= _SAYS_NOTHING


def distinct(schemas: Iterable[Schema]) -> list[Schema]:
    """The schemas, each once."""
    return list({text_of(schema): schema for schema in schemas}.values())


def either(schemas: Sequence[Schema]) -> Schema:
    """Return a schema that matches the values of each of these."""
    if not schemas or any(map(fits_all, schemas)):
        return {}
    different = distinct(schemas)
    return different[0] if len(different) == 1 else {"anyOf": different}


def both(one: Schema, other: Schema) -> Schema:
    """Return a schema that matches the values of both. Of two keywords that exclude each other, that of the first
    stays.
    """
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
    """Return the schema with the parts that services require (properties of objects, items of arrays) and without those
    that they reject (values of other types, required names that are missing). An object without known properties is
    marked as open, because guided decoders take it for an empty one otherwise.
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
    """Return the schema of properties that neither names; None if it cannot be expressed."""
    mine, theirs = (schema.get("additionalProperties") for schema in (one, other))
    if mine == theirs:
        return mine
    if theirs in (None, True) and not other.get("properties"):
        return mine
    if mine in (None, True) and not one.get("properties"):
        return theirs
    return None


def reference_resolver(document: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a function from a reference to its target in the document, None if the document does not contain it.

    Nothing is ever fetched (MCP specification 2026-07-28: MUST NOT).
    """
    # Loaded only for schemas with references: the demo model starts without other libraries.
    from referencing import Registry, Resource, Specification  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    try:
        resource: Resource[Any] = Resource.from_contents(document, default_specification=DRAFT202012)
        base = resource.id() or ""
        registry = Registry[Any]().with_resource(base, resource).crawl()
    except Exception:  # noqa: BLE001 - it is malformed somewhere: only its JSON pointers mean something
        base = ""
        registry = Registry[Any]().with_resource(base, Specification.OPAQUE.create_resource(document))
    resolver = registry.resolver(base)

    def resolve(reference: str) -> Any:
        try:
            return resolver.lookup(reference).contents
        except (Unresolvable, LookupError, TypeError, ValueError):
            return None

    return resolve


class SchemaTooLarge(Exception):
    """There is more in the document than could be sent."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a schema: levels below the root, and characters of each description there."""

    deepest: int
    longest: int


_TRIES = (Bounds(12, 1024), Bounds(12, 200), Bounds(6, 100), Bounds(3, 0), Bounds(1, 0), Bounds(0, 0))


@dataclass(slots=True)
class SchemaReader:
    """One reading of a document. `keys` is the pattern of property names that the service accepts."""

    document: Mapping[str, Any]
    keys: re.Pattern[str]
    bounds: Bounds
    nodes: int = 0
    resolve: Callable[[str], Any] | None = None

    def whole(self) -> Schema:
        """The document as one schema. Raises SchemaTooLarge."""
        return self._schema(self.document, 0, ())

    def _schema(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Schema:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise SchemaTooLarge
        if depth >= self.bounds.deepest:
            given = {keyword: value for keyword, value in given.items() if keyword not in _WITHIN}
        schema = completed(self._own(given, depth, refs))
        for part in self._parts(given, depth, refs):
            schema = both(schema, part)
        return schema

    def _below(self, given: Any, depth: int, refs: tuple[str, ...]) -> Schema | None:
        """A schema one level further down; None for one that nothing fits."""
        if given is False:
            return None
        return self._schema(given, depth + 1, refs) if isinstance(given, Mapping) else {}

    def _parts(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Iterator[Schema]:
        """Schemas that hold as well as the one they stand in."""
        reference = given.get("$ref")
        if isinstance(reference, str) and reference not in refs and len(refs) < _MOST_REFERENCES:
            target = self._resolve(reference)
            if isinstance(target, Mapping):
                yield self._schema(target, depth, (*refs, reference))
        yield from self._branches(given, "allOf", depth, refs)
        for keyword in ("anyOf", "oneOf"):
            branches = self._branches(given, keyword, depth, refs)
            if branches:
                yield either(branches)

    def _resolve(self, reference: str) -> Any:
        if self.resolve is None:
            self.resolve = reference_resolver(self.document)
        return self.resolve(reference)

    def _branches(self, given: Mapping[str, Any], keyword: str, depth: int, refs: tuple[str, ...]) -> list[Schema]:
        """The schemas that a keyword lists, without those that nothing fits; none if they are too many."""
        listed = given.get(keyword)
        if not isinstance(listed, list) or len(listed) > _MOST_BRANCHES:
            return []
        branches = (self._below(branch, depth, refs) for branch in listed)
        return [branch for branch in branches if branch is not None]

    def _own(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Schema:
        schema: Schema = {}
        notes = list(_keyword_notes(given))
        if types := _types(given):
            schema["type"] = types[0] if len(types) == 1 else types
        schema |= self._properties(given, depth, refs, notes)
        schema |= self._items(given, depth, refs, notes)
        if values := _values(given):
            schema["enum"] = values
        format_name = given.get("format")
        if isinstance(format_name, str) and format_name in FORMATS:
            schema["format"] = format_name
        schema |= {keyword: given[keyword] for keyword in _NUMBERS if _is_bound(keyword, given.get(keyword))}
        schema |= {keyword: int(given[keyword]) for keyword in _COUNTS if _is_count(given.get(keyword))}
        if given.get("uniqueItems") is True:
            schema["uniqueItems"] = True
        if "default" in given and _short(given["default"]):
            schema["default"] = given["default"]
        longest = self.bounds.longest if depth else LONGEST_DESCRIPTION
        if words := summarize_schema(given, notes, longest):
            schema["description"] = words
        return schema

    def _properties(
        self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...], notes: list[str]
    ) -> dict[str, Any]:
        listed, required = given.get("properties"), given.get("required")
        listed = listed if isinstance(listed, Mapping) else {}
        required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        required = list(dict.fromkeys(required[:_MOST_PROPERTIES]))
        listed = {name: schema for name, schema in listed.items() if schema is not False} | {
            name: {} for name in required if name not in listed
        }
        accepted = filter(self.keys.fullmatch, listed)
        sent = set(sorted(accepted, key=lambda name: name not in required)[:_MOST_PROPERTIES])
        result: dict[str, Any] = {}
        if sent:
            result["properties"] = {name: self._below(listed[name], depth, refs) for name in listed if name in sent}
            result["required"] = [name for name in required if name in sent]
        left_out = {name: schema for name, schema in listed.items() if name not in sent}
        notes.extend(_left_out(left_out, required))
        rest = given.get("additionalProperties")
        if left_out or "patternProperties" in given:
            rest = None
        if isinstance(rest, Mapping):
            rest = self._below(rest, depth, refs) or True
        if isinstance(rest, bool | dict):
            result["additionalProperties"] = rest
        return result

    def _items(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...], notes: list[str]) -> dict[str, Any]:
        """The items of an array. Those of a tuple become one schema: draft 7 and 2020-12 write tuples differently."""
        first, rest = given.get("prefixItems"), given.get("items")
        if isinstance(rest, list):
            first, rest = rest, given.get("additionalItems")
        if not isinstance(first, list):
            return {"items": self._below(rest, depth, refs)} if isinstance(rest, Mapping) else {}
        places = [self._below(item, depth, refs) or {} for item in first[:_MOST_BRANCHES]]
        notes.append("in this order: " + ", ".join(_kind(place) for place in places))
        most = given.get("maxItems")
        if rest is False or (isinstance(most, int) and most <= len(places)):
            return {"items": either(places)}
        further = self._below(rest, depth, refs) if isinstance(rest, Mapping) else {}
        return {"items": either([*places, further or {}])}


def summarize_schema(given: Mapping[str, Any], notes: Sequence[str], longest: int) -> str:
    """Return the description or the title of a schema, followed by the notes, in at most `longest` characters."""
    words = _text(given.get("description")) or _text(given.get("title"))
    note = truncate("; ".join(notes), _LONGEST_NOTES)
    if not note:
        return truncate(words, longest)
    note = f"({note})"
    if longest < len(note) + 3:
        return truncate(words or note, longest)
    return f"{truncate(words, longest - len(note) - 1)} {note}".strip()


def truncate(text: str, longest: int) -> str:
    """The text within a number of characters."""
    return text if len(text) <= longest else text[: max(0, longest - 1)].rstrip() + "…" * (longest > 0)


def _keyword_notes(given: Mapping[str, Any]) -> Iterator[str]:
    for keyword in _IN_WORDS:
        if keyword in given and _short(given[keyword], _LONGEST_NOTE) and '"$ref"' not in text_of(given[keyword]):
            yield f"{keyword}: {text_of(given[keyword])}"
    name = given.get("format")
    if isinstance(name, str) and name not in FORMATS and len(name) <= _LONGEST_NOTE:
        yield f"format: {name}"


def _left_out(properties: Mapping[str, Any], required: Sequence[str]) -> Iterator[str]:
    """In words: properties whose names a service refuses, and those that are too many."""
    if not properties:
        return
    described = [
        f"{text_of(truncate(name, _LONGEST_NOTE))} ({_kind(schema)}{' required' * (name in required)})"
        for name, schema in islice(properties.items(), 10)
    ]
    more = len(properties) - len(described)
    yield "also takes " + ", ".join(described) + (f" and {more} more" if more else "")


def _kind(schema: Any) -> str:
    types = _types(schema) if isinstance(schema, Mapping) else []
    return " or ".join(types) or "anything"


def _types(given: Mapping[str, Any]) -> list[str]:
    named = given.get("type")
    named = named if isinstance(named, list) else [named]
    types = [name for name in TYPES if name in named]
    types.sort(key=named.index)
    if types and given.get("nullable") is True and "null" not in types:  # as OpenAPI 3.0 writes it
        types.append("null")
    return types


def _values(given: Mapping[str, Any]) -> list[Any]:
    """The only values that fit, each once; none if any does, or if they are too many or too long to list."""
    listed = given.get("enum")
    if "const" in given:
        listed = [given["const"]]
    if not isinstance(listed, list) or len(listed) > _MOST_VALUES or not all(map(_short, listed)):
        return []
    if given.get("nullable") is True:
        listed = [*listed, None]
    values = (int(value) if isinstance(value, float) and value.is_integer() else value for value in listed)
    return list({text_of(value): value for value in values}.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST_NUMBER


def _is_bound(keyword: str, value: Any) -> bool:
    return _is_number(value) and (keyword != "multipleOf" or value > 0)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and math.floor(value) == value


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _short(value: Any, longest: int = _LARGEST_VALUE) -> bool:
    """Return True if a value can be written as JSON of at most `longest` characters."""
    try:
        return len(text_of(value)) <= longest
    except (ValueError, RecursionError, TypeError):
        return False


@lru_cache(maxsize=512)
def _offered(text: str, keys: re.Pattern[str]) -> Schema:
    document = json.loads(replace_surrogates(text))
    for bounds in _TRIES:
        with suppress(SchemaTooLarge):
            schema = _rooted(SchemaReader(document, keys, bounds).whole())
            written = text_of(schema)
            # Each schema has its brace: what is sent can be read again.
            if len(written) <= LARGEST_SCHEMA and written.count("{") <= MOST_NODES:
                return schema
    return dict(_EMPTY)


def _rooted(schema: Schema) -> Schema:
    """The schema as that of a call's arguments, which are an object: no service takes a union there."""
    branches = [branch for branch in schema.pop("anyOf", ()) if "object" in (types_of(branch) or ["object"])]
    if branches:
        schema = both(schema, _united(branches))
        if words := summarize_schema(schema, _ways(branches), LONGEST_DESCRIPTION):
            schema["description"] = words
    schema = {"properties": {}, **schema, "type": "object"}
    if schema.get("additionalProperties") is True:  # as it is anyway
        del schema["additionalProperties"]
    return {keyword: schema[keyword] for keyword in _OF_ROOT if keyword in schema}


def _united(branches: list[Schema]) -> Schema:
    """Several ways to call a tool as one: every argument that any of them takes, required where all require it."""
    properties: dict[str, list[Schema]] = {}
    for branch in branches:
        for name, schema in branch.get("properties", {}).items():
            properties.setdefault(name, []).append(schema)
    required = [set(branch.get("required", ())) for branch in branches]
    return {
        "properties": {name: _any_of(schemas) for name, schemas in properties.items()},
        "required": sorted(set.intersection(*required)),
    }


def _ways(branches: list[Schema]) -> list[str]:
    """In words: which arguments belong together."""
    ways = dict.fromkeys(tuple(branch.get("required", ())) for branch in branches)
    return ["required: " + " or ".join(f"({', '.join(way)})" for way in ways)] if len(ways) > 1 else []


def _any_of(schemas: list[Schema]) -> Schema:
    """Return a schema for the values of any of these. If one accepts every value, the others remain as a hint."""
    return either([schema for schema in schemas if not fits_all(schema)]) or schemas[0]
