"""A tool as a model's service takes it: its name, its description and a schema that is never refused.

Called by the provider modules, each with what its service thinks of the names of properties. What servers list is
JSON Schema of any draft, or nearly; services read less of it, and refuse a whole request for one schema they do not
like. The copy made here is for the model alone: arguments are judged by the server's own schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from bot.domain.characters import visible
from bot.domain.tools import Tool
from bot.llm.schema_merge import Schema, both, either, fits_all, text_of, types_of
from bot.llm.schema_simplify import MOST_NODES, Bounds, SchemaReader, SchemaTooLarge, summarize_schema, truncate
from bot.llm.text_encoding import replace_surrogates

LONGEST_DESCRIPTION = 1024
"""Characters (OpenAI's limit for a function; more than that is rarely about the tool)."""
LARGEST_SCHEMA = 16_384
"""Characters of JSON. What is larger loses words first and depth then."""

_TRIES = (Bounds(12, 1024), Bounds(12, 200), Bounds(6, 100), Bounds(3, 0), Bounds(1, 0), Bounds(0, 0))
_OF_ROOT = ("type", "description", "properties", "required", "additionalProperties")
_EMPTY: Schema = {"type": "object", "properties": {}}


def tool_description(tool: Tool) -> str:
    """What the tool does, in its server's words, within 1,024 characters."""
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
    """What fits one of them; where one lets everything pass, the others still say what is meant."""
    return either([each for each in schemas if not fits_all(each)]) or schemas[0]
