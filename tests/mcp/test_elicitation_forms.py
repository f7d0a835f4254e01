"""Forms that servers have filled in: which values fit them."""

from __future__ import annotations

from typing import Any

import pytest

from bot.mcp.argument_validation import group_by_argument, validate

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
def test_a_text_must_look_like_what_the_form_asks_for(format_: str, fitting: list[str], unfit: list[str]) -> None:
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
def test_each_kind_of_field_takes_what_it_says(field: dict[str, Any], fitting: Any, unfit: Any) -> None:
    assert group_by_argument(form(field), {"f": fitting}) == ()
    assert [each.argument for each in group_by_argument(form(field), {"f": unfit})] == ["f"]
