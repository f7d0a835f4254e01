"""Arguments of calls and schemas of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.messages import ToolCall
from bot.domain.tools import Tool
from bot.llm.tool_arguments import object_schema, read_call, written_arguments

OBJECTS = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=5)


@given(OBJECTS, st.booleans())
def test_every_json_object_is_read_as_it_was_written(arguments: dict[str, Any], ascii_only: bool) -> None:
    call = read_call("c", "look", json.dumps(arguments, ensure_ascii=ascii_only))
    assert (call.arguments, call.unreadable) == (arguments, "")
    assert written_arguments(call) == arguments


@given(OBJECTS.filter(bool), st.data())
def test_no_beginning_of_an_object_is_taken_for_the_object(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(arguments)
    call = read_call("c", "look", text[: data.draw(st.integers(1, len(text) - 1))])
    assert call.arguments == {}
    assert call.unreadable


def test_an_unreadable_call_is_written_as_an_object() -> None:
    assert written_arguments(ToolCall("c", "look", unreadable="{brok")) == {"_unreadable": "{brok"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"properties": None}, {"type": "object", "properties": {}}),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["a"], "$defs": {}},
            {"type": "object", "properties": {"a": {}}, "required": ["a"], "$defs": {}},
        ),
    ],
)
def test_a_schema_is_always_an_object_with_properties(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert object_schema(Tool("t", "s", "t", input_schema=schema)) == expected
