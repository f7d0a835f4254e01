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
from urllib.parse import unquote

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
    mine, theirs = (each.get("additionalProperties") for each in (one, other))
    if mine == theirs:
        return mine
    if theirs in (None, True) and not other.get("properties"):
        return mine
    if mine in (None, True) and not one.get("properties"):
        return theirs
    return None


_SHELVES = ("$defs", "definitions")
NOWHERE = object()


def resolve_ref(document: Mapping[str, Any], reference: object) -> Any:
    """Return the target of `reference` in `document`: by JSON pointer (RFC 6901), by anchor, or by the `$id` of a
    definition. `NOWHERE` if the document does not contain it: nothing is ever fetched (MCP specification 2026-07-28:
    MUST NOT).
    """
    if not isinstance(reference, str):
        return NOWHERE
    own = document.get("$id")
    if isinstance(own, str) and own and reference.startswith(own.rstrip("#") + "#"):
        reference = reference[len(own.rstrip("#")) :]
    if reference == "#":
        return document
    if reference.startswith("#/"):
        return _pointed(document, unquote(reference[2:]).split("/"))
    return _named(document, reference)


def _pointed(document: Any, path: list[str]) -> Any:
    found = document
    for escaped in path:
        step = escaped.replace("~1", "/").replace("~0", "~")
        match found:
            case Mapping() if step in found:
                found = found[step]
            case list() if step.isascii() and step.isdigit() and len(step) < 6 and int(step) < len(found):
                found = found[int(step)]
            case _:
                return NOWHERE
    return found


def _named(document: Mapping[str, Any], name: str) -> Any:
    for shelf in _SHELVES:
        definitions = document.get(shelf)
        for each in definitions.values() if isinstance(definitions, Mapping) else ():
            if isinstance(each, Mapping) and name in (each.get("$id"), f"#{each.get('$anchor')}"):
                return each
    return NOWHERE


TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
FORMATS = frozenset({"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
"""The formats that both vendors document."""

_LONGEST_DESCRIPTION = 1024
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
_TOLD = (
    *("pattern", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains"),
    *("minContains", "maxContains", "patternProperties", "propertyNames", "contentEncoding", "contentMediaType"),
    "examples",
)
"""Keywords that are described in words: some services reject them (a `pattern` in another dialect), and few obey them.
"""
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


class SchemaTooLarge(Exception):
    """There is more in the document than could be sent."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a schema: levels below the root, and characters of each description there."""

    deepest: int
    longest: int


@dataclass(slots=True)
class SchemaReader:
    """One reading of a document. `keys` is the pattern of property names that the service accepts."""

    document: Mapping[str, Any]
    keys: re.Pattern[str]
    bounds: Bounds
    nodes: int = 0

    def whole(self) -> Schema:
        """The document as one schema. Raises SchemaTooLarge."""
        return self._schema(self.document, 0, ())

    def _schema(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Schema:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise SchemaTooLarge
        if depth >= self.bounds.deepest:
            given = {keyword: value for keyword, value in given.items() if keyword not in _WITHIN}
        found = completed(self._own(given, depth, refs))
        for part in self._parts(given, depth, refs):
            found = both(found, part)
        return found

    def _below(self, given: Any, depth: int, refs: tuple[str, ...]) -> Schema | None:
        """A schema one level further down; None for one that nothing fits."""
        if given is False:
            return None
        return self._schema(given, depth + 1, refs) if isinstance(given, Mapping) else {}

    def _parts(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Iterator[Schema]:
        """Schemas that hold as well as the one they stand in."""
        reference = given.get("$ref")
        if isinstance(reference, str) and reference not in refs and len(refs) < _MOST_REFERENCES:
            meant = resolve_ref(self.document, reference)
            if meant is not NOWHERE and isinstance(meant, Mapping):
                yield self._schema(meant, depth, (*refs, reference))
        yield from self._branches(given, "allOf", depth, refs)
        for keyword in ("anyOf", "oneOf"):
            branches = self._branches(given, keyword, depth, refs)
            if branches:
                yield either(branches)

    def _branches(self, given: Mapping[str, Any], keyword: str, depth: int, refs: tuple[str, ...]) -> list[Schema]:
        """The schemas that a keyword lists, without those that nothing fits; none if they are too many."""
        listed = given.get(keyword)
        if not isinstance(listed, list) or len(listed) > _MOST_BRANCHES:
            return []
        read = (self._below(entry, depth, refs) for entry in listed)
        return [each for each in read if each is not None]

    def _own(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Schema:
        found: Schema = {}
        notes = list(_told(given))
        if types := _types(given):
            found["type"] = types[0] if len(types) == 1 else types
        found |= self._properties(given, depth, refs, notes)
        found |= self._items(given, depth, refs, notes)
        if values := _values(given):
            found["enum"] = values
        form = given.get("format")
        if isinstance(form, str) and form in FORMATS:
            found["format"] = form
        found |= {keyword: given[keyword] for keyword in _NUMBERS if _is_bound(keyword, given.get(keyword))}
        found |= {keyword: int(given[keyword]) for keyword in _COUNTS if _is_count(given.get(keyword))}
        if given.get("uniqueItems") is True:
            found["uniqueItems"] = True
        if "default" in given and _short(given["default"]):
            found["default"] = given["default"]
        longest = self.bounds.longest if depth else _LONGEST_DESCRIPTION
        if words := summarize_schema(given, notes, longest):
            found["description"] = words
        return found

    def _properties(
        self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...], notes: list[str]
    ) -> dict[str, Any]:
        listed = given.get("properties")
        listed = listed if isinstance(listed, Mapping) else {}
        needed = given.get("required")
        needed = [each for each in needed if isinstance(each, str)] if isinstance(needed, list) else []
        needed = list(dict.fromkeys(needed[:_MOST_PROPERTIES]))
        listed = {name: each for name, each in listed.items() if each is not False} | {
            name: {} for name in needed if name not in listed
        }
        fitting = [name for name in listed if self.keys.fullmatch(name)]
        first = sorted(fitting, key=lambda name: name not in needed)[:_MOST_PROPERTIES]
        kept = set(first)
        found: dict[str, Any] = {}
        properties = {name: self._below(listed[name], depth, refs) for name in fitting if name in kept}
        if properties:
            found["properties"] = properties
            found["required"] = [name for name in needed if name in properties]
        left_out = {name: each for name, each in listed.items() if name not in kept}
        notes.extend(_left_out(left_out, needed))
        rest = given.get("additionalProperties")
        if left_out or "patternProperties" in given:
            rest = None
        if isinstance(rest, Mapping):
            rest = self._below(rest, depth, refs) or True
        if isinstance(rest, bool | dict):
            found["additionalProperties"] = rest
        return found

    def _items(self, given: Mapping[str, Any], depth: int, refs: tuple[str, ...], notes: list[str]) -> dict[str, Any]:
        """The items of an array. Those of a tuple become one schema: draft 7 and 2020-12 write tuples differently."""
        first, rest = given.get("prefixItems"), given.get("items")
        if isinstance(rest, list):
            first, rest = rest, given.get("additionalItems")
        if not isinstance(first, list):
            each = self._below(rest, depth, refs) if isinstance(rest, Mapping) else None
            return {} if each is None else {"items": each}
        places = [self._below(each, depth, refs) or {} for each in first[:_MOST_BRANCHES]]
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


def _told(given: Mapping[str, Any]) -> Iterator[str]:
    for keyword in _TOLD:
        if keyword in given and _short(given[keyword], _LONGEST_NOTE) and '"$ref"' not in text_of(given[keyword]):
            yield f"{keyword}: {text_of(given[keyword])}"
    form = given.get("format")
    if isinstance(form, str) and form not in FORMATS and len(form) <= _LONGEST_NOTE:
        yield f"format: {form}"


def _left_out(properties: Mapping[str, Any], needed: Sequence[str]) -> Iterator[str]:
    """In words: properties whose names a service refuses, and those that are too many."""
    if not properties:
        return
    told = []
    for name, each in islice(properties.items(), 10):
        kind = " ".join(filter(None, (_kind(each), "required" if name in needed else "")))
        told.append(f"{text_of(truncate(name, _LONGEST_NOTE))} ({kind})")
    more = len(properties) - len(told)
    yield "also takes " + ", ".join(told) + (f" and {more} more" if more else "")


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
    whole = (int(entry) if isinstance(entry, float) and entry.is_integer() else entry for entry in listed)
    return list({text_of(each): each for each in whole}.values())


def _is_bound(keyword: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST_NUMBER:
        return False
    return keyword != "multipleOf" or value > 0


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= _LARGEST_NUMBER and math.floor(value) == value


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _short(value: Any, longest: int = _LARGEST_VALUE) -> bool:
    """Return True if a value can be written as JSON of at most `longest` characters."""
    try:
        return len(text_of(value)) <= longest
    except (ValueError, RecursionError, TypeError):
        return False


LONGEST_DESCRIPTION = 1024
"""Characters (OpenAI's limit for a function; more than that is rarely about the tool)."""
LARGEST_SCHEMA = 16_384
"""Limit in characters of JSON. A larger schema loses descriptions first, then depth."""

_TRIES = (Bounds(12, 1024), Bounds(12, 200), Bounds(6, 100), Bounds(3, 0), Bounds(1, 0), Bounds(0, 0))
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


@lru_cache(maxsize=512)
def _offered(text: str, keys: re.Pattern[str]) -> Schema:
    document = json.loads(replace_surrogates(text))
    for bounds in _TRIES:
        with suppress(SchemaTooLarge):
            found = _rooted(SchemaReader(document, keys, bounds).whole())
            written = text_of(found)
            # Each schema has its brace: what is sent can be read again.
            if len(written) <= LARGEST_SCHEMA and written.count("{") <= MOST_NODES:
                return found
    return dict(_EMPTY)


def _rooted(found: Schema) -> Schema:
    """The schema as that of a call's arguments, which are an object: no service takes a union there."""
    branches = [each for each in found.pop("anyOf", ()) if "object" in (types_of(each) or ["object"])]
    if branches:
        found = _with_note(both(found, _united(branches)), _ways(branches))
    found = {"properties": {}, **found, "type": "object"}
    if found.get("additionalProperties") is True:  # as it is anyway
        del found["additionalProperties"]
    return {keyword: found[keyword] for keyword in _OF_ROOT if keyword in found}


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


def _ways(branches: list[Schema]) -> str:
    """In words: which arguments belong together."""
    ways = dict.fromkeys(tuple(branch.get("required", ())) for branch in branches)
    listed = (f"({', '.join(way)})" for way in ways)
    return f"required: {' or '.join(listed)}" if len(ways) > 1 else ""


def _with_note(schema: Schema, note: str) -> Schema:
    words = summarize_schema(schema, [note] if note else [], LONGEST_DESCRIPTION)
    return {**schema, "description": words} if words else schema


def _any_of(schemas: list[Schema]) -> Schema:
    """Return a schema for the values of any of these. If one accepts every value, the others remain as a hint."""
    return either([schema for schema in schemas if not fits_all(schema)]) or schemas[0]
