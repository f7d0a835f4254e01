"""Errors of the vendors about the schema of a tool, in their words.

The rules are those that their answers with status 400 have taught: openai/openai-agents-python#449,
sigoden/aichat#1049, spring-projects/spring-ai#4776 and anthropics/claude-code#5973 among others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# The library comes without type information.
from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

MOST_TOOLS = 128
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_UNIONS = ("anyOf", "oneOf", "allOf")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_LOOKS_AROUND = re.compile(r"\(\?(?!:)")
Place = tuple[str, ...]


def openai_complaint(name: str, schema: Any) -> str | None:
    """Return OpenAI's complaint about the parameters of a function, or `None`."""
    problem = next(_openai_problems(schema), None)
    return f"Invalid schema for function '{name}': {problem}" if problem else None


def anthropic_complaint(schema: Any) -> str | None:
    """Return Anthropic's complaint about an input schema behind `tools.3.custom.`, or `None`."""
    return next(_anthropic_problems(schema), None)


def _openai_problems(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        return
    if any(keyword in schema for keyword in (*_UNIONS, "enum", "not")):
        yield ("schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.")
    if complaint := _not_a_schema(schema):
        yield complaint
        return
    for place, each in _schemas(schema, ()):
        yield from (f"In context={place!r}, {problem}" for problem in _node_problems(schema, each))


def _node_problems(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if "object" in types and "properties" not in schema:
        yield "object schema missing properties."
    if "array" in types and not isinstance(schema.get("items"), Mapping):
        yield "array schema missing items."
    if "$ref" in schema and _resolve_reference(document, schema["$ref"]) is None:
        yield f"reference can only point to definitions defined at the top level of the schema: {schema['$ref']}"
    if "format" in schema and schema["format"] not in _FORMATS:
        yield f"{schema['format']!r} is not a valid format."
    if "pattern" in schema and (_LOOKS_AROUND.search(schema["pattern"]) or not _compiles(schema["pattern"])):
        yield f"{schema['pattern']!r} is not a 'regex'."
    alone = Draft202012Validator({"type": types} if types else {})
    for value in schema.get("enum", ()):
        if not alone.is_valid(value):
            yield f"enum value {value!r} does not validate against {types!r}."
    if unknown := set(schema.get("required", ())) - schema.get("properties", {}).keys():
        yield f"'required' names properties that are not there: {sorted(unknown)}."


def _anthropic_problems(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping) or "type" not in schema:
        yield "input_schema.type: Field required"
        return
    if schema["type"] != "object":
        yield "input_schema.type: Input should be 'object'"
    if any(keyword in schema for keyword in _UNIONS):
        yield "input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    if _not_a_schema(schema) or any("$ref" in each for _, each in _schemas(schema, ()) if not _own_refs(schema, each)):
        yield (
            "input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
            " (https://json-schema.org/draft/2020-12)."
        )
        return
    for _, each in _schemas(schema, ()):
        if not all(map(_KEY.fullmatch, each.get("properties", {}))):
            yield "input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"


def _own_refs(document: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    return "$ref" not in schema or _resolve_reference(document, schema["$ref"]) is not None


def _not_a_schema(schema: Mapping[str, Any]) -> str:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"In context={tuple(map(str, error.absolute_path))!r}, {error.message[:200]}."
    return ""


def _resolve_reference(document: Any, reference: str) -> Any:
    found = document
    for step in reference.removeprefix("#").split("/")[1:]:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if reference.startswith("#") else None


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _schemas(schema: Any, place: Place) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield all schemas within a valid schema, each with its path."""
    if not isinstance(schema, Mapping):
        return
    yield place, schema
    for keyword in ("properties", "$defs", "patternProperties", "dependentSchemas"):
        for name, each in schema.get(keyword, {}).items():
            yield from _schemas(each, (*place, keyword, name))
    for keyword in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield from _schemas(schema.get(keyword), (*place, keyword))
    for keyword in (*_UNIONS, "prefixItems"):
        for n, each in enumerate(schema.get(keyword, ())):
            yield from _schemas(each, (*place, keyword, str(n)))
