"""The short way to check simple schemas, beside the library."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from bot.mcp.argument_validation import FlatSchema

NAMES = st.sampled_from(("a", "b", "c"))
PROPERTIES = st.dictionaries(
    NAMES, st.fixed_dictionaries({"type": st.sampled_from(("string", "boolean", "integer", "number"))})
)
VALUES = st.one_of(st.text(max_size=3), st.booleans(), st.integers(), st.floats(), st.none(), st.just([]), st.just({}))
DRAFTS = st.sampled_from(
    (
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    )
)


@given(PROPERTIES, st.lists(NAMES, unique=True, min_size=1), st.booleans(), DRAFTS, st.dictionaries(NAMES, VALUES))
def test_what_fits_by_the_short_way_fits_by_the_library(
    properties: dict[str, Any], required: list[str], others: bool, draft: str, values: dict[str, Any]
) -> None:
    schema = {
        "$schema": draft,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
    }
    flat = FlatSchema.of(schema)
    assert flat is not None
    if flat.is_surely_valid(values):
        assert validator_for(schema)(schema).is_valid(values)


def test_values_of_the_right_types_fit() -> None:
    flat = FlatSchema.of(
        {
            "type": "object",
            "properties": {
                "to": {"type": "string", "title": "To"},
                "much": {"type": "number"},
                "loud": {"type": "boolean"},
            },
            "required": ["to"],
        }
    )
    assert flat is not None
    assert flat.is_surely_valid({"to": "ana", "much": 3, "loud": True})
    assert not flat.is_surely_valid({"much": 3})
    assert not flat.is_surely_valid({"to": "ana", "much": True})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object", "minProperties": 1},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "null"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}},
        {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}},
        {"$schema": "http://json-schema.org/draft-03/schema#", "type": "object", "required": True},
    ],
)
def test_a_schema_that_asks_for_more_is_the_librarys(schema: dict[str, Any]) -> None:
    assert FlatSchema.of(schema) is None
