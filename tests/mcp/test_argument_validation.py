"""Validation of values against a schema: arguments of calls, and forms of elicitations with their formats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from bot.mcp.argument_validation import flat_check, group_by_argument, validate

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
def test_arguments_valid_in_the_fast_path_are_valid_in_the_library(
    properties: dict[str, Any], required: list[str], others: bool, draft: str, values: dict[str, Any]
) -> None:
    schema = {
        "$schema": draft,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
    }
    is_surely_valid = flat_check(schema)
    assert is_surely_valid is not None
    if is_surely_valid(values):
        assert validator_for(schema)(schema).is_valid(values)


def test_values_of_the_right_types_fit() -> None:
    is_surely_valid = flat_check(
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
    assert is_surely_valid is not None
    assert is_surely_valid({"to": "ana", "much": 3, "loud": True})
    assert not is_surely_valid({"much": 3})
    assert not is_surely_valid({"to": "ana", "much": True})


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
    assert flat_check(schema) is None


COLOURS = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]


def form(field: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": field}, "required": ["f"]}


@pytest.mark.parametrize(
    ("format_", "fitting", "unfit"),
    [
        (
            "email",
            ["ana@example.com", "ana+x@localhost", "ana@xn--bcher-kva.example"],
            ["ana", "@example.com", "a b@c", "a@b..c"],
        ),
        (
            "uri",
            ["https://example.com/a?b=c#d", "mailto:ana@example.com", "urn:isbn:1"],
            ["example.com", "https://a b", "/a", ""],
        ),
        ("date", ["2026-11-22", "2024-02-29"], ["22.11.2026", "2026-02-30", "20261122", "2026-11-22T10:00:00Z"]),
        (
            "date-time",
            ["2026-11-22T14:30:00Z", "2026-11-22T14:30:00.123456789+01:00", "2026-11-22t14:30:00z"],
            ["2026-11-22T14:30:00", "2026-11-22 14:30:00Z", "2026-11-22T25:00:00Z", "2026-02-30T14:30:00Z", "now"],
        ),
    ],
)
def test_a_text_must_have_the_format_of_its_field(format_: str, fitting: list[str], unfit: list[str]) -> None:
    schema = form({"type": "string", "format": format_})
    for value in fitting:
        assert group_by_argument(schema, {"f": value}) == ()
    for value in unfit:
        assert [each.argument for each in group_by_argument(schema, {"f": value})] == ["f"]


def test_formats_that_forms_do_not_have_mean_nothing() -> None:
    assert group_by_argument(form({"type": "string", "format": "ipv4"}), {"f": "no address"}) == ()


def test_models_are_not_held_to_formats() -> None:
    assert validate(form({"type": "string", "format": "uri"}), {"f": "example.com"}) == ()


@pytest.mark.parametrize(
    ("field", "fitting", "unfit"),
    [
        ({"type": "string", "enum": ["a", "b"]}, "a", "c"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, "b", "B"),
        ({"type": "string", "oneOf": COLOURS}, "#f00", "Red"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1}, ["a"], ["a", "b"]),
        ({"type": "array", "items": {"anyOf": COLOURS}, "minItems": 1}, ["#f00", "#0f0"], ["Red"]),
        ({"type": "integer", "minimum": 1, "maximum": 9}, 9, 10),
        ({"type": "string", "minLength": 2}, "ab", "a"),
        ({"type": "boolean"}, False, "no"),
    ],
)
def test_each_kind_of_field_takes_its_kind_of_value(field: dict[str, Any], fitting: Any, unfit: Any) -> None:
    assert group_by_argument(form(field), {"f": fitting}) == ()
    assert [each.argument for each in group_by_argument(form(field), {"f": unfit})] == ["f"]
