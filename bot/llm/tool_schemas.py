"""Tool definitions for model requests: a name, a description and a schema that every provider accepts.

Servers list JSON Schema of any draft. Providers read less of it, and reject a whole request because of one schema. The
copy made here is for the model alone: arguments are validated by the server's own schema. So the copy may allow more
than the original, never less.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from itertools import islice
from typing import Any

from bot.domain.characters import visible
from bot.domain.completions import ModelRequest, ToolChoice
from bot.llm.wire_format import replace_surrogates

Schema = dict[str, Any]

LONGEST_DESCRIPTION = 1024
"""Characters (OpenAI's limit for a function; more than that is rarely about the tool)."""
LARGEST_SCHEMA = 16_384
"""Limit in characters of JSON. A larger schema loses descriptions first, then depth."""
_LIMITS = ((12, 1024), (12, 200), (6, 100), (3, 0), (1, 0), (0, 0))
"""Levels below the root, and characters of each description there: the first that make the schema fit are used."""
_LONGEST_OWN = 250_000
"""Characters of a description that the bot itself wrote: it may list the names of many tools."""
_MAX_NODES = 1000
_MAX_REFERENCES = 8  # in a chain
_MAX_LISTED = 200  # properties of an object, values of an enumeration
_MAX_BRANCHES = 50
_MAX_VALUE = 300
_MAX_NOTE = 200
_MAX_NOTES = 500
_MAX_NUMBER = 2**53

_TYPES = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_FORMATS = ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""The formats that both vendors document."""
_LOWER_LIMITS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_LIMITS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_COPIED = ("format", *_LOWER_LIMITS, *_UPPER_LIMITS, "multipleOf", "uniqueItems", "default")
_ROOT = ("type", "description", "properties", "required", "additionalProperties")
_SENT = (*_ROOT, "items", "anyOf", "enum", *_COPIED)
"""Every keyword that is ever sent, in the order in which it is: the same schema is always the same text."""
_OF_TYPE = {
    "object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
    "array": {"items", "minItems", "maxItems", "uniqueItems"},
}
"""Keywords that apply to one type only."""
_ABSENT: Schema = {"type": [], "description": "", "required": [], "enum": [], "additionalProperties": None}
_NESTED = {"$ref", "allOf", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items", "prefixItems"}
_IN_WORDS = (
    *("pattern", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains"),
    *("minContains", "maxContains", "patternProperties", "propertyNames", "contentEncoding", "contentMediaType"),
    "examples",
)
"""Keywords that become part of the description: some services reject them, and few obey them."""


def tool_fields(
    request: ModelRequest,
    keys: re.Pattern[str],
    write: Callable[[dict[str, Any]], Any],
    none: object,
    parameters: str = "parameters",
) -> dict[str, Any]:
    """Return the fields of a request's body for its tools, each as `write` makes it of its name, its description and
    its arguments, whose property names match `keys`. `none` is the choice of no tool. `parameters` is the field of the
    arguments.
    """
    tools = []
    for tool in request.tools:
        # Descriptions that the bot wrote are not cut.
        longest = _LONGEST_OWN if tool.is_builtin else LONGEST_DESCRIPTION
        description = _truncate(visible(tool.description), LONGEST_DESCRIPTION)
        arguments = {parameters: tool_schema(tool.input_schema, keys, longest)}
        tools.append(write({"name": tool.name, "description": description, **arguments}))
    # The tools stay listed if none may be called: calls in the transcript refer to them.
    choice = {"tool_choice": none} if request.tool_choice is ToolChoice.NONE else {}
    return {"tools": tools, **choice} if tools else {}


def tool_schema(
    schema: Mapping[str, Any], keys: re.Pattern[str], longest_description: int = LONGEST_DESCRIPTION
) -> Schema:
    """Return the schema for a service that accepts property names which match `keys` as a whole.

    It is an object without references, unions at its root, or keywords that services treat differently, of at most
    16,384 characters. The result is deterministic, and a schema that this function has returned is returned unchanged.
    """
    try:
        return _simplify(json.dumps(schema, ensure_ascii=False, default=dict), keys, longest_description)
    except (ValueError, RecursionError):
        return {"type": "object", "properties": {}}


@lru_cache(maxsize=512)
def _simplify(text: str, keys: re.Pattern[str], longest_description: int) -> Schema:
    document = json.loads(replace_surrogates(text), parse_constant=lambda _: None)  # NaN, as JavaScript writes it
    largest = LARGEST_SCHEMA + longest_description - LONGEST_DESCRIPTION
    for max_depth, max_description in ((_LIMITS[0][0], longest_description), *_LIMITS[1:]):
        with suppress(_SchemaTooLarge):
            schema = _root(_Reader(document, keys, max_depth, max_description).read_schema(document))
            sent = _to_json(schema)
            # Every schema is closed, so that the result can be parsed again.
            if len(sent) <= largest and sent.count("{") <= _MAX_NODES:
                return schema
    raise ValueError("no part of the schema is small enough")


def _root(schema: Schema) -> Schema:
    """Return the schema of a call's arguments, which are an object. No service accepts a union there: it becomes one
    object with the properties of all its branches, and those required that all of them require.
    """
    branches = [branch for branch in schema.pop("anyOf", ()) if "object" in (_types(branch) or ["object"])]
    if branches:
        properties: dict[str, list[Schema]] = {}
        for branch in branches:
            for name, child in branch.get("properties", {}).items():
                properties.setdefault(name, []).append(child)
        ways = dict.fromkeys(tuple(branch.get("required", ())) for branch in branches)
        united = {
            name: _union(list(filter(_constrains, children))) or children[0] for name, children in properties.items()
        }
        schema = _intersection(schema, {"properties": united, "required": sorted(set.intersection(*map(set, ways)))})
        notes = ["required: " + " or ".join(f"({', '.join(names)})" for names in ways)] if len(ways) > 1 else []
        schema["description"] = _describe(schema, notes, LONGEST_DESCRIPTION)
    schema = _complete({**schema, "type": "object"})
    if schema.get("additionalProperties") is True:  # as it is anyway
        del schema["additionalProperties"]
    return {keyword: schema[keyword] for keyword in _ROOT if keyword in schema}


class _SchemaTooLarge(Exception):
    pass


@dataclass
class _Reader:
    """One reading of a document, within limits."""

    document: Mapping[str, Any]
    keys: re.Pattern[str]
    max_depth: int
    max_description: int
    nodes: int = 0

    def read_schema(self, source: Mapping[str, Any], depth: int = 0, refs: tuple[str, ...] = ()) -> Schema:
        """Return the schema to send in place of this one, reached through `refs`. Raises _SchemaTooLarge."""
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise _SchemaTooLarge
        if depth >= self.max_depth:
            source = {keyword: value for keyword, value in source.items() if keyword not in _NESTED}
        below = partial(self._below, depth=depth + 1, refs=refs)
        notes = list(_keyword_notes(source))
        schema = {keyword: source[keyword] for keyword in _COPIED if keyword in source and _is_usable(keyword, source)}
        values = [source["const"]] if "const" in source else _keyword_values(source, "enum", _MAX_LISTED)
        if values and source.get("nullable") is True:
            values = [*values, None]
        distinct = {_to_json(value): value for value in values}
        schema |= {
            "type": _types(source),
            "enum": (list(distinct.values()) if all(len(text) <= _MAX_VALUE for text in distinct) else []),
        }
        schema |= self._properties(source, below, notes) | _items(source, below, notes)
        schema["description"] = _describe(source, notes, self.max_description if depth else LONGEST_DESCRIPTION)
        all_of, any_of, one_of = (
            [branch for branch in map(below, _keyword_values(source, keyword, _MAX_BRANCHES)) if branch is not None]
            for keyword in ("allOf", "anyOf", "oneOf")
        )
        parts = [*self._resolve_reference(source, depth, refs), *all_of, _union(any_of), _union(one_of)]
        return reduce(_intersection, filter(None, parts), _complete(schema))

    def _below(self, source: Any, depth: int, refs: tuple[str, ...]) -> Schema | None:
        """Return the schema of a keyword's value; None if no value fits it."""
        if isinstance(source, Mapping):
            return self.read_schema(source, depth, refs)
        return None if source is False else {}

    def _resolve_reference(self, source: Mapping[str, Any], depth: int, refs: tuple[str, ...]) -> Iterator[Schema]:
        reference = source.get("$ref")
        if isinstance(reference, str) and reference not in refs and len(refs) < _MAX_REFERENCES:
            target = self._resolve(reference)
            if isinstance(target, Mapping):
                yield self.read_schema(target, depth, (*refs, reference))

    @cached_property
    def _resolve(self) -> Callable[[str], Any]:
        """Returns a reference's target within the document. Nothing is ever fetched (MCP 2026-07-28: MUST NOT)."""
        # Loaded only for schemas with references: the demo model starts without other libraries.
        from referencing import Registry, Resource, Specification  # noqa: PLC0415
        from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

        try:
            resource: Resource[Any] = Resource.from_contents(self.document, default_specification=DRAFT202012)
            resolver = Registry[Any]().with_resource(base := resource.id() or "", resource).crawl().resolver(base)
        except Exception:  # noqa: BLE001 - it is malformed somewhere: only its JSON pointers mean something
            resolver = Registry[Any]().resolver_with_root(Specification.OPAQUE.create_resource(self.document))

        def resolve(reference: str) -> Any:
            with suppress(Exception):  # the library expects a well-formed document
                return resolver.lookup(reference).contents
            return None

        return resolve

    def _properties(self, source: Mapping[str, Any], below: Callable[[Any], Schema | None], notes: list[str]) -> Schema:
        listed, rest = source.get("properties"), source.get("additionalProperties")
        listed = dict(listed) if isinstance(listed, Mapping) else {}
        self.nodes += len(listed) // _MAX_LISTED  # a large object takes time wherever it is referred to
        required = dict.fromkeys(name for name in _keyword_values(source, "required") if isinstance(name, str))
        required = dict.fromkeys(islice(required, _MAX_LISTED))
        listed |= {name: {} for name in required if name not in listed}
        listed = {name: child for name, child in listed.items() if child is not False}
        accepted = sorted(filter(self.keys.fullmatch, listed), key=lambda name: name not in required)
        sent = set(accepted[:_MAX_LISTED])
        schema: Schema = {"required": list(required)}
        if sent:
            schema["properties"] = {name: below(child) for name, child in listed.items() if name in sent}
        if left_out := [name for name in listed if name not in sent]:
            described = [
                f"{_to_json(name[:_MAX_NOTE])} ({_type_words(listed[name])}{' required' * (name in required)})"
                for name in left_out[:10]
            ]
            more = f" and {len(left_out) - 10} more" * (len(left_out) > 10)
            notes.append(f"also takes {', '.join(described)}{more}")
        elif isinstance(rest, bool | Mapping) and "patternProperties" not in source:
            schema["additionalProperties"] = rest if rest is False else below(rest) or True
        return schema


def _items(source: Mapping[str, Any], below: Callable[[Any], Schema | None], notes: list[str]) -> Schema:
    """Return the schema of the items of an array. A tuple gets one schema for all items, because draft 7 and 2020-12
    write tuples differently.
    """
    first, rest = source.get("prefixItems"), source.get("items")
    if isinstance(rest, list):
        first, rest = rest, source.get("additionalItems")
    if not isinstance(first, list):
        return {"items": below(rest)} if isinstance(rest, Mapping) else {}
    schemas = [below(item) or {} for item in first[:_MAX_BRANCHES]]
    notes.append("in this order: " + ", ".join(map(_type_words, schemas)))
    longest = source.get("maxItems")
    is_closed = rest is False or (isinstance(longest, int) and longest <= len(schemas))
    if not is_closed or len(first) > len(schemas):
        schemas.append(below(rest) or {})
    return {"items": _union(schemas)}


def _union(schemas: Sequence[Schema]) -> Schema:
    """Return a schema for the values of any of these."""
    distinct = list({_to_json(schema): schema for schema in schemas}.values())
    if not all(map(_constrains, distinct)):
        return {}
    return {"anyOf": distinct} if len(distinct) > 1 else distinct[0] if distinct else {}


def _constrains(schema: Schema) -> bool:
    return not schema.keys() <= {"description", "default"}


def _intersection(first: Schema, second: Schema) -> Schema:
    """Return a schema for the values of both. Of two keywords that one schema cannot express, the first stays."""
    merged = {**second, **first}
    for keyword in first.keys() & second.keys():
        if first[keyword] != second[keyword]:
            merged[keyword] = _both(keyword, first[keyword], second[keyword])
    for schema, other in ((first, second), (second, first)):
        if schema.get("additionalProperties") is True and "properties" in other:
            merged["additionalProperties"] = other.get("additionalProperties")
    return _complete(merged)


def _both(keyword: str, first: Any, second: Any) -> Any:
    result = first
    match keyword:
        case "properties":
            result = {name: _intersection(first.get(name, {}), second.get(name, {})) for name in {**first, **second}}
        case "required":
            result = list(dict.fromkeys((*first, *second)))
        case "items":
            result = _intersection(first, second)
        case "additionalProperties":
            result = second if first is True else first
        case "enum":
            result = [value for value in first if value in second] or first
        case "type":
            types, others = (
                {*types, *["integer"] * ("number" in types)}
                for types in (_types({"type": first}), _types({"type": second}))
            )
            result = [name for name in _TYPES if name in types & others] or first
        case _ if keyword in _LOWER_LIMITS:
            result = max(first, second)
        case _ if keyword in _UPPER_LIMITS:
            result = min(first, second)
    return result


def _complete(schema: Schema) -> Schema:
    """Return the schema with the parts that services require (properties of objects, items of arrays) and without those
    that they reject (values of other types, required names that are missing). An object without known properties is
    marked as open, because guided decoders take it for an empty one otherwise.
    """
    types = _types(schema)
    idle = {keyword for name, keywords in _OF_TYPE.items() if types and name not in types for keyword in keywords}
    defaults: Schema = {"items": {}} if "array" in types else {}
    if "object" in types and not schema.get("properties"):
        defaults |= {"properties": {}, "additionalProperties": True}
    schema = {**defaults, **{keyword: value for keyword, value in schema.items() if keyword not in idle}}
    schema["type"] = types[0] if len(types) == 1 else types
    schema["required"] = [name for name in schema.get("required", ()) if name in schema.get("properties", {})]
    if types:
        enum = schema.get("enum", ())
        schema["enum"] = [value for value in enum if any(type(value) in _TYPES[name] for name in types)]
    absent = {keyword for keyword, nothing in _ABSENT.items() if schema.get(keyword) == nothing}
    return {keyword: schema[keyword] for keyword in _SENT if keyword in schema and keyword not in absent}


def _is_usable(keyword: str, source: Mapping[str, Any]) -> bool:
    """Return True if a keyword has a value that every service accepts."""
    value = source[keyword]
    match keyword:
        case "format":
            return value in _FORMATS
        case "uniqueItems":
            return value is True
        case "default":
            return len(_to_json(value)) <= _MAX_VALUE
    if type(value) not in (int, float) or abs(value) > _MAX_NUMBER:
        return False
    is_count = keyword.endswith(("Length", "Items", "Properties"))
    return value > 0 if keyword == "multipleOf" else not is_count or (type(value) is int and value >= 0)


def _types(source: Mapping[str, Any]) -> list[str]:
    """Return the names of the permitted types, none if all are permitted."""
    named = source.get("type")
    named = named if isinstance(named, list) else [named]
    types = [name for name in named if isinstance(name, str) and name in _TYPES]
    if types and source.get("nullable") is True:  # as OpenAPI 3.0 writes it
        types.append("null")
    return list(dict.fromkeys(types))


def _type_words(schema: Any) -> str:
    return " or ".join(_types(schema) if isinstance(schema, Mapping) else ()) or "anything"


def _keyword_values(source: Mapping[str, Any], keyword: str, limit: float = math.inf) -> list[Any]:
    """Return the values of a keyword; none if they are too many."""
    values = source.get(keyword)
    return values if isinstance(values, list) and len(values) <= limit else []


def _describe(source: Mapping[str, Any], notes: Sequence[str], limit: int) -> str:
    """Return the description or the title of a schema, followed by the notes, in at most `limit` characters."""
    texts = (source.get("description"), source.get("title"))
    words = next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")
    note = f"({_truncate('; '.join(notes), _MAX_NOTES)})" if notes else ""
    if note and limit < len(note) + 3:
        return _truncate(words or note, limit)
    return f"{_truncate(words, limit - len(note) - bool(note))} {note}".strip()


def _keyword_notes(source: Mapping[str, Any]) -> Iterator[str]:
    for keyword in _IN_WORDS:
        if source.get(keyword) is not None:
            text = _to_json(source[keyword])
            if len(text) <= _MAX_NOTE and '"$ref"' not in text:
                yield f"{keyword}: {text}"
    name = source.get("format")
    if isinstance(name, str) and name not in _FORMATS and len(name) <= _MAX_NOTE:
        yield f"format: {name}"


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…" * (limit > 0)


def _to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
