"""Conversion of a call's arguments to form fields, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.commands import FieldKind
from bot.i18n import use_language
from bot.rendering.argument_fields import LEAVE_OUT, LONGEST, MOST_FIELDS, argument_form, read_arguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["summary", "urgent"],
    "properties": {
        "summary": {"type": "string", "description": "In one line"},
        "priority": {"type": "string", "enum": ["Low", "High"]},
        "points": {"type": "integer"},
        "weight": {"type": "number"},
        "urgent": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "fields": {"type": "object"},
    },
}
CALL: dict[str, Any] = {
    "summary": "Checkout 502s",
    "priority": "High",
    "points": 3,
    "weight": 2.5,
    "urgent": True,
    "labels": ["checkout", "pool"],
    "fields": {"team": {"id": 7}},
}


def field_values(arguments: dict[str, Any], schema: dict[str, Any] | None = None) -> dict[str, str]:
    form = argument_form(SCHEMA if schema is None else schema, arguments)
    return {field.argument: field.field.value for field in form.fields}


def fill_form(
    arguments: dict[str, Any], answers: dict[str, str], schema: dict[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the edited call for these answers by argument, and the errors by argument."""
    form = argument_form(SCHEMA if schema is None else schema, arguments)
    given_answers = {field.field.name: answers.get(field.argument, field.field.value) for field in form.fields}
    made, errors = read_arguments(form, arguments, given_answers)
    arguments_of = {field.field.name: field.argument for field in form.fields}
    return made, {arguments_of[name]: error for name, error in errors.items()}


def test_each_kind_of_argument_has_a_field_of_its_kind() -> None:
    form = argument_form(SCHEMA, CALL)
    kinds = {field.argument: field.field.kind for field in form.fields}
    assert kinds == {
        "summary": FieldKind.TEXT,
        "priority": FieldKind.CHOICE,
        "points": FieldKind.TEXT,
        "weight": FieldKind.TEXT,
        "urgent": FieldKind.CHOICE,
        "labels": FieldKind.LINES,
        "fields": FieldKind.TEXT,
    }
    choices = {field.argument: field.field.choices for field in form.fields if field.field.choices}
    assert choices == {"priority": ("Low", "High", LEAVE_OUT), "urgent": ("yes", "no")}
    assert [field.argument for field in form.fields if field.field.required] == ["summary", "urgent"]


def test_a_field_has_the_present_value_of_the_call() -> None:
    assert field_values(CALL) == {
        "summary": "Checkout 502s",
        "priority": "High",
        "points": "3",
        "weight": "2.5",
        "urgent": "yes",
        "labels": "checkout\npool",
        "fields": '{"team": {"id": 7}}',
    }


def test_typed_values_become_values_of_the_same_kinds() -> None:
    answers = {
        "summary": "Pool is empty",
        "priority": "Low",
        "points": "5",
        "weight": "1",
        "urgent": "no",
        "labels": " a \n\n b",
        "fields": '{"team": null}',
    }
    made, errors = fill_form(CALL, answers)
    assert errors == {}
    assert made == {
        "summary": "Pool is empty",
        "priority": "Low",
        "points": 5,
        "weight": 1,
        "urgent": False,
        "labels": ["a", "b"],
        "fields": {"team": None},
    }


def test_an_emptied_field_leaves_its_argument_out_where_it_may() -> None:
    made, errors = fill_form(CALL, {"priority": LEAVE_OUT, "points": "", "labels": "", "fields": ""})
    assert errors == {}
    assert made == {"summary": "Checkout 502s", "weight": 2.5, "urgent": True}
    _, errors = fill_form(CALL, {"summary": "", "urgent": ""})
    assert sorted(errors) == ["summary", "urgent"]


def test_an_empty_text_is_not_an_absent_one() -> None:
    schema = {"properties": {"note": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}}}}
    assert field_values({}, schema) == {"note": "", "labels": ""}
    assert field_values({"note": ""}, schema)["note"] == '""'
    assert fill_form({}, {"note": '""'}, schema)[0] == {"note": ""}
    assert fill_form({"note": "x"}, {"note": ""}, schema)[0] == {}
    assert fill_form({"note": "", "labels": []}, {}, schema)[0] == {"note": "", "labels": []}


def test_surrounding_blanks_and_hidden_characters_do_not_get_lost() -> None:
    for text in (" a ", "a\n", "\u202eevil", "tab\there", '"quoted"', "line\r\nline", "\x00"):
        assert fill_form({"summary": text, "urgent": True}, {})[0]["summary"] == text
    assert field_values({"summary": "\u202eevil", "urgent": True})["summary"] == '"\\u202eevil"'


@pytest.mark.parametrize(
    ("argument", "answer", "said"),
    [
        ("points", "2.5", "A whole number"),
        ("points", "many", "A whole number"),
        ("points", "true", "A whole number"),
        ("weight", "1e999", "A number"),
        ("weight", "NaN", "A number"),
        ("priority", "Medium", "One of: Low, High."),
        ("urgent", LEAVE_OUT, "One of: yes, no"),
        ("fields", "{team: 7}", "That is no JSON."),
        ("fields", '{"team": 7, "team": 8}', "This cannot be used: the name 'team' is there twice."),
        ("fields", "[" * 65 + "]" * 65, "That is no JSON."),
        ("fields", '["\\ud800"]', "That is no JSON."),
        ("fields", "[" * 100_000, "That is no JSON."),
    ],
)
def test_an_invalid_value_has_its_error_under_the_field(argument: str, answer: str, said: str) -> None:
    made, errors = fill_form(CALL, {argument: answer})
    assert list(errors) == [argument]
    assert errors[argument].startswith(said)
    assert made == CALL


def test_a_withheld_value_is_not_prefilled_and_stays_unless_another_is_typed() -> None:
    call = {"api_key": "very-secret", "header": "Authorization: Bearer abcdefghijklmnop", "auth": {"password": "x1"}}
    schema = {"properties": {"api_key": {"type": "string"}, "header": {"type": "string"}, "auth": {"type": "object"}}}
    form = argument_form(schema, call, withheld={"api_key", "auth"})
    assert [field.field.value for field in form.fields] == ["", call["header"], ""]
    assert "very-secret" not in str([field.field for field in form.fields])
    assert read_arguments(form, call, {field.field.name: field.field.value for field in form.fields}) == (call, {})
    assert read_arguments(form, call, {"a0": "another"}) == ({**call, "api_key": "another"}, {})


def test_or_null_is_an_empty_field() -> None:
    schema = {
        "properties": {
            "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "b": {"type": ["string", "null"]},
            "c": {"type": ["string", "integer"]},
        }
    }
    assert fill_form({}, {"a": "3", "b": "x", "c": '"y"'}, schema)[0] == {"a": 3, "b": "x", "c": "y"}
    assert fill_form({"a": None, "b": None}, {}, schema)[0] == {"a": None, "b": None}


def test_a_value_that_does_not_fit_its_schema_stands_as_json() -> None:
    assert field_values({"points": "three", "labels": [1], "urgent": "yes"})["points"] == '"three"'
    assert field_values({"labels": [1]})["labels"] == "[1]"


def test_an_argument_too_long_or_too_many_has_no_field_and_stays() -> None:
    call = {"summary": "x" * (LONGEST + 1), "urgent": True}
    form = argument_form(SCHEMA, call)
    assert form.left == ("summary",)
    assert fill_form(call, {"urgent": "no"})[0] == {**call, "urgent": False}
    many = {f"k{n}": n for n in range(MOST_FIELDS + 4)}
    form = argument_form({}, many)
    assert (len(form.fields), len(form.left)) == (MOST_FIELDS, 4)
    assert fill_form(many, {"k0": "7"}, {})[0] == {**many, "k0": 7}


def test_present_arguments_come_before_possible_ones() -> None:
    schema = {"properties": {f"p{n}": {"type": "string"} for n in range(40)}, "required": ["p39"]}
    names = [field.argument for field in argument_form(schema, {"p38": "x", "extra": 1}).fields]
    assert len(names) == MOST_FIELDS
    assert {"p38", "p39", "extra"} <= set(names)


@pytest.mark.parametrize(
    "schema", [{"properties": 7, "required": 7}, {"properties": {"summary": 7}}, {"type": "array"}]
)
def test_a_schema_that_is_none_keeps_nothing_from_being_changed(schema: dict[str, Any]) -> None:
    assert fill_form({"summary": "x"}, {"summary": '"y"'}, schema)[0] == {"summary": "y"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
_TYPES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "enum": ["a", "b", ""]},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "integer"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object"},
        {},
    ]
)


@given(st.dictionaries(st.text(), _TYPES, max_size=6), st.dictionaries(st.text(), _JSON, max_size=6), st.data())
def test_an_untouched_form_changes_nothing(
    properties: dict[str, Any], extra: dict[str, Any], data: st.DataObject
) -> None:
    present = {name: data.draw(_JSON) for name in properties if data.draw(st.booleans())}
    arguments = {**present, **extra}
    made, errors = fill_form(arguments, {}, {"properties": properties})
    assert (made, errors) == (arguments, {})
    assert {name: type(value) for name, value in made.items()} == {n: type(v) for n, v in arguments.items()}


@given(st.text(max_size=200), _TYPES)
def test_any_typed_text_becomes_a_value_of_its_kind_or_an_error(answer: str, schema: dict[str, Any]) -> None:
    kinds: dict[Any, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list}
    made, errors = fill_form({}, {"x": answer}, {"properties": {"x": schema}})
    assert not (made and errors)
    if made and schema.get("type") in kinds:
        assert isinstance(made["x"], kinds[schema["type"]])


@pytest.mark.parametrize("answer", ["はい", "yes", "true"])
def test_a_choice_is_taken_in_the_language_of_its_reader_and_in_english(answer: str) -> None:
    schema = {"properties": {"urgent": {"type": "boolean"}}}
    with use_language("ja"):
        form = argument_form(schema, {"urgent": False})
        (field,) = (entry.field for entry in form.fields)
        assert (field.value, field.choices) == ("いいえ", ("はい", "いいえ", "指定しない"))
        assert read_arguments(form, {"urgent": False}, {field.name: answer}) == ({"urgent": True}, {})
        assert read_arguments(form, {"urgent": False}, {field.name: "leave out"}) == ({}, {})
