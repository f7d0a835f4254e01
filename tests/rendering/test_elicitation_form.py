"""Elicitations as form fields, and the values that the server gets."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.commands import Field, FieldKind
from bot.rendering.elicitation_card import FORM_FIELDS, elicitation_form

COLOURS = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]


def schema(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def the_field(about: dict[str, Any], *, required: bool = True) -> Field:
    (field,) = elicitation_form(schema(("it",) if required else (), it=about)).fields
    return field


def submitted_value(about: dict[str, Any], typed: str, *, required: bool = True) -> Any:
    """Return the value for a typed text; the error if the text is invalid."""
    values, errors = elicitation_form(schema(("it",) if required else (), it=about)).parse_answers({"a0": typed})
    return next(iter(errors.values())) if errors else values.get("it", "nothing")


def test_a_field_has_its_title_its_description_and_whether_it_is_needed() -> None:
    field = the_field({"type": "string", "title": "Your mail", "description": "For the receipt", "format": "email"})
    assert (field.label, field.required, field.kind) == ("Your mail", True, FieldKind.TEXT)
    assert field.hint == "an email address · For the receipt"
    assert not the_field({"type": "string"}, required=False).required
    assert the_field({"type": "string"}, required=False).label == "it"


@pytest.mark.parametrize(
    ("about", "hint"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 10}, "a whole number · 1 to 10"),
        ({"type": "number", "minimum": 0.5}, "a number · at least 0.5"),
        ({"type": "integer", "maximum": 3}, "a whole number · at most 3"),
        ({"type": "string", "format": "date"}, "a date such as 2026-11-22"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "one on each line · any of: a, b"),
    ],
)
def test_a_hint_has_the_limits_of_the_value(about: dict[str, Any], hint: str) -> None:
    assert the_field(about).hint == hint


@pytest.mark.parametrize(
    "about",
    [
        {"type": "string", "oneOf": COLOURS},
        {"oneOf": COLOURS},
        {"type": "string", "anyOf": COLOURS},
        {"type": "string", "enum": ["#f00", "#0f0"], "enumNames": ["Red", "Green"]},
    ],
)
def test_titled_choices_are_shown_by_title_and_sent_by_value(about: dict[str, Any]) -> None:
    field = the_field(about)
    assert (field.kind, field.choices) == (FieldKind.CHOICE, ("Red", "Green"))
    assert submitted_value(about, "Green") == "#0f0"
    assert the_field({**about, "default": "#0f0"}).value == "Green"


def test_choices_with_titles_that_look_the_same_are_shown_by_their_values() -> None:
    about = {"oneOf": [{"const": "a", "title": "Same"}, {"const": "b", "title": "same"}]}
    assert the_field(about).choices == ("a", "b")


def test_several_choices_are_typed_one_on_each_line_by_title_or_by_value() -> None:
    about = {"type": "array", "items": {"anyOf": COLOURS}, "default": ["#f00"]}
    assert (the_field(about).kind, the_field(about).value) == (FieldKind.LINES, "Red")
    assert submitted_value(about, "green\n#f00\nGreen") == ["#0f0", "#f00"]
    assert submitted_value(about, "Blue") == "One of: Red, Green."


def test_more_choices_than_a_platform_offers_are_typed() -> None:
    about = {"type": "string", "enum": [f"choice {n}" for n in range(40)]}
    assert the_field(about).kind is FieldKind.TEXT
    assert the_field(about).hint.startswith("one of: choice 0, choice 1")
    assert submitted_value(about, "CHOICE 39") == "choice 39"
    assert str(submitted_value(about, "no such")).startswith("One of: choice 0, ")


@pytest.mark.parametrize(
    ("about", "typed", "value"),
    [
        ({"type": "string"}, "Buy milk", "Buy milk"),
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "no", False),
        ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
        ({"type": "integer"}, "three", "A whole number, such as 3."),
    ],
)
def test_typed_text_is_sent_as_a_value_of_its_kind(about: dict[str, Any], typed: str, value: object) -> None:
    assert submitted_value(about, typed) == value


def test_defaults_are_filled_in_and_sent_where_nothing_is_changed() -> None:
    wanted = schema(
        ("name",),
        name={"type": "string", "default": "Ana"},
        age={"type": "integer", "default": 30},
        mail={"type": "boolean", "default": True},
        tone={"type": "string", "enum": ["warm", "cold"], "default": "warm"},
        note={"type": "string"},
    )
    form = elicitation_form(wanted)
    assert [field.value for field in form.fields] == ["Ana", "30", "yes", "warm", ""]
    untouched = {field.name: field.value for field in form.fields}
    same = {"name": "Ana", "age": 30, "mail": True, "tone": "warm"}
    assert form.parse_answers(untouched) == (same, {})
    assert form.parse_answers({}) == (same, {})
    cleared = form.parse_answers({**untouched, form.field_of("age"): "", form.field_of("tone"): "leave out"})
    assert cleared == ({"name": "Ana", "mail": True}, {})


def test_an_empty_text_as_a_default_leaves_its_field_empty_and_is_sent() -> None:
    form = elicitation_form(schema(note={"type": "string", "default": ""}))
    assert form.fields[0].value == ""
    assert form.parse_answers({"a0": ""}) == ({"note": ""}, {})
    assert form.parse_answers({"a0": "by the window"}) == ({"note": "by the window"}, {})


def test_a_default_that_is_no_flat_value_is_left_out() -> None:
    assert the_field({"type": "string", "default": {"a": 1}}).value == ""


def test_fields_too_many_for_a_form_are_named() -> None:
    form = elicitation_form(schema(("f30",), **{f"f{n}": {"type": "string"} for n in range(31)}))
    assert len(form.fields) == FORM_FIELDS
    assert form.left[0] == "f23"
    assert "f30" not in form.left
    assert form.field_of("f30") == "a30"


def test_no_unseen_value_is_sent() -> None:
    many = {f"f{n}": {"type": "string", "default": "seen"} for n in range(FORM_FIELDS)}
    long = {"type": "string", "default": "x" * 4_000}
    consent = {"type": "boolean", "default": True}
    form = elicitation_form(schema((), **many, consent=consent, note={"default": ""}, long=long))
    assert form.left == ("consent", "note", "long")
    assert form.parse_answers({}) == (dict.fromkeys(many, "seen"), {})
    hidden = elicitation_form(schema(note={"type": "string", "default": "Bearer abcdefghijklmnop"}))
    assert hidden.parse_answers({field.name: field.value for field in hidden.fields}) == ({}, {})


def test_a_choice_is_the_one_that_is_shown_though_another_is_called_so_inside() -> None:
    about = {"type": "string", "enum": ["2", "1"], "enumNames": ["1", "2"]}
    assert [submitted_value(about, shown) for shown in ("1", "2")] == ["2", "1"]


def test_a_field_without_a_name_has_one_on_screens() -> None:
    form = elicitation_form(schema((), **{" ": {"type": "string", "title": " "}}))
    assert [field.label for field in form.fields] == ["(no name)"]


@pytest.mark.parametrize("odd", [{}, {"properties": None}, {"properties": {"it": None}}, {"properties": {"it": {}}}])
def test_odd_schemas_make_forms_all_the_same(odd: dict[str, Any]) -> None:
    form = elicitation_form(odd)
    assert form.parse_answers(dict.fromkeys((field.name for field in form.fields), ""))[1] == {}
