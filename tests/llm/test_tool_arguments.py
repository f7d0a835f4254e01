"""Parsing of the arguments of calls."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.lenient_json import DEEPEST
from bot.domain.messages import ToolCall
from bot.llm.wire_format import encode_arguments, parse_call

OBJECTS = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=5)


@given(OBJECTS, st.booleans())
def test_every_json_object_is_read_as_it_was_written(arguments: dict[str, Any], ascii_only: bool) -> None:
    call = parse_call("c", "look", json.dumps(arguments, ensure_ascii=ascii_only))
    assert (call.arguments, call.unreadable) == (arguments, "")
    assert encode_arguments(call) == arguments


@given(OBJECTS.filter(bool), st.data())
def test_no_beginning_of_an_object_is_taken_for_the_object(arguments: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(arguments)
    call = parse_call("c", "look", text[: data.draw(st.integers(1, len(text) - 1))])
    assert call.arguments == {}
    assert call.unreadable


def test_arguments_that_are_nested_too_deeply_for_some_readers_are_not_taken() -> None:
    deep = '{"a":' * DEEPEST + "%s" + "}" * DEEPEST
    assert parse_call("c", "look", deep % "1").arguments
    assert parse_call("c", "look", deep % "[]").unreadable


def test_an_unreadable_call_is_written_as_an_object() -> None:
    assert encode_arguments(ToolCall("c", "look", unreadable="{brok")) == {"_unreadable": "{brok"}
