"""A server's schema, read into the few keywords that every service understands.

Called by `tool_schemas`. A schema can be anything: another draft's, wrong, endless, huge. What cannot be kept is told
in the description where it is short, and left out where it is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bot.llm.schema_merge import Schema, both, completed, either, text_of
from bot.llm.schema_refs import NOWHERE, resolve_ref

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
FORMATS = frozenset({"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
"""The formats that both vendors document."""

_LONGEST_DESCRIPTION = 1024
_LONGEST_NOTES = 500
_LONGEST_NOTE = 200
MOST_NODES = 1000
_MOST_REFERENCES = 8
"""How many references may lie behind one another."""
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
"""What is told in words: services refuse some of it (a `pattern` in another dialect), and hardly any obeys it."""
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


class SchemaTooLarge(Exception):
    """There is more in the document than could be sent."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be kept: levels below the root, and characters of each description there."""

    deepest: int
    longest: int


@dataclass(slots=True)
class SchemaReader:
    """One reading of a document. `keys` is what names of properties a service takes."""

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
        read = (self._below(each, depth, refs) for each in listed)
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
        notes.append("in this order: " + ", ".join(_kind(each) for each in places))
        most = given.get("maxItems")
        if rest is False or (isinstance(most, int) and most <= len(places)):
            return {"items": either(places)}
        further = self._below(rest, depth, refs) if isinstance(rest, Mapping) else {}
        return {"items": either([*places, further or {}])}


def summarize_schema(given: Mapping[str, Any], notes: Sequence[str], longest: int) -> str:
    """The description of a schema, or its title, and behind it what else is to be known, in `longest` characters."""
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
    whole = (int(each) if isinstance(each, float) and each.is_integer() else each for each in listed)
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
    """Whether a value is one that JSON can say, and briefly."""
    try:
        return len(text_of(value)) <= longest
    except (ValueError, RecursionError, TypeError):
        return False
