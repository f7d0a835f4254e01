"""The demo model answers any message with any servers, and its calls conform to the schemas."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.completions import Completion, ModelRequest, TextDelta, ToolChoice
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant, tool_results, user
from bot.domain.tools import Tool
from tests.llm.demo_offers import EVERYTHING, events

validator: Any = importlib.import_module("jsonschema").Draft202012Validator

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=12,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "items",
        "default",
        "minimum",
        "maxLength",
        "format",
        "multipleOf",
    ]
)
NONSENSE = st.recursive(
    st.sampled_from(["string", "integer", "object", "array", "#", "#/properties/a", "#/$defs", ""]) | JSON,
    lambda inner: (
        st.dictionaries(KEYWORDS | st.sampled_from(["a", "b"]), inner, max_size=4) | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)
VERBS = ["add", "delete", "list", "find", "send", "turn on", "what is", "remember", "show me", "教えて", "追加"]
NOUNS = ["note", "lamp", "invoice", "Tokyo", "東京", "3", "-7", "2.5", "on", "off", "red", "tomorrow", "2026-02-30"]
MARKS = [":", ";", "\n", '"', "“", "”", "「", "」", "and", "in", "from", "to", ",", "'", "=", "limit", "a@b.co", "id"]
REQUESTS = [
    "add a note",
    "delete the lamp",
    "list invoices",
    "find it",
    "send",
    "turn on",
    "weather",
    "weather in Tokyo and in Osaka",
    "add a note: red, 3, id: 4",
]
TALK = st.lists(st.sampled_from(VERBS + NOUNS + MARKS) | st.text(max_size=8), max_size=12).map(" ".join)

NAMES = st.sampled_from(
    [
        "id",
        "text",
        "place",
        "room",
        "count",
        "limit",
        "days",
        "path",
        "color",
        "tags",
        "when",
        "due_date",
        "from",
        "to",
        "email",
        "url",
        "flag",
        "query",
    ]
)

ORDERS = st.tuples(st.sampled_from(REQUESTS), TALK).map(" ".join)


def numbers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    bound = st.integers(-5, 50)
    return st.fixed_dictionaries(
        {"type": st.just(kind)},
        optional={"minimum": bound, "maximum": bound, "exclusiveMinimum": bound, "multipleOf": st.integers(1, 4)},
    )


SCALARS = (
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "format": st.sampled_from(["date", "date-time", "email", "uri", "odd"]),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(2, 20),
            "description": st.text(max_size=10) | st.sampled_from(["City, such as Tokyo", "today or tomorrow"]),
        },
    )
    | numbers("integer")
    | numbers("number")
    | st.just({"type": "boolean"})
    | st.just({"enum": ["red", "green", 3, None]})
    | st.just({"const": "red"})
    | st.just({"type": ["null", "integer"]})
    | st.just({"anyOf": [{"type": "null"}, {"type": "string"}]})
    | st.just({"$ref": "#/$defs/Color"})
)
PARAMETERS = (
    SCALARS
    | st.fixed_dictionaries(
        {"type": st.just("array"), "items": SCALARS},
        optional={"minItems": st.integers(0, 2), "maxItems": st.integers(1, 3), "uniqueItems": st.booleans()},
    )
    | st.just({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    | st.just({"type": "integer", "default": "not a number"})
    | st.just({"type": "integer", "maximum": "not a number", "default": None})
)


@st.composite
def sensible_tools(draw: st.DrawFn) -> Tool:
    properties = draw(st.dictionaries(NAMES, PARAMETERS, max_size=4))
    required = draw(st.lists(st.sampled_from([*properties, "extra"]), unique=True, max_size=4))
    name = draw(st.sampled_from(["add_note", "delete_lamp", "list_invoices", "find", "send", "turn_on", "weather"]))
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "$defs": {"Color": {"enum": ["red", "blue"]}},
    }
    return Tool(f"srv__{name}", "srv", name, draw(st.text(max_size=10)), draw(TALK), schema)


def ask(request: ModelRequest) -> Completion:
    """Send a request to the demo model. Check that the streamed text is equal to the completed text."""
    *pieces, last = asyncio.run(events(request))
    assert isinstance(last, Completion)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == last.message.text
    assert last.message.text or last.message.tool_calls
    return last


@given(st.lists(sensible_tools(), max_size=4, unique_by=lambda tool: tool.name), ORDERS)
def test_every_call_keeps_to_the_schema_of_its_tool(tools: list[Tool], said: str) -> None:
    schemas = {tool.name: tool.input_schema for tool in tools}
    request = ModelRequest((user(said),), tuple(tools))
    message = ask(request).message
    assert message == ask(request).message
    for call in message.tool_calls:
        validator(schemas[call.name]).validate(dict(call.arguments))
    assert len({(call.name, repr(call.arguments)) for call in message.tool_calls}) == len(message.tool_calls)


@given(sensible_tools(), ORDERS, TALK)
def test_answers_to_its_questions_keep_to_the_schema_too(tool: Tool, said: str, answer: str) -> None:
    asked = ask(ModelRequest((user(said),), (tool,))).message
    message = ask(ModelRequest((user(said), asked, user(answer)), (tool,))).message
    for call in message.tool_calls:
        validator(tool.input_schema).validate(dict(call.arguments))


@given(st.text(max_size=12), st.text(max_size=12), st.dictionaries(KEYWORDS, NONSENSE, max_size=5), TALK)
def test_no_schema_and_no_text_makes_it_fail(server: str, name: str, schema: dict[str, Any], said: str) -> None:
    tool = Tool(f"{server}__{name}", server, name, said, said, schema)
    ask(ModelRequest((user(f"{said} {name}"),), (tool, *EVERYTHING[:3])))


@given(st.text(max_size=40), JSON, st.booleans(), st.sampled_from(ToolChoice))
def test_no_result_makes_it_fail(text: str, data: Any, failed: bool, choice: ToolChoice) -> None:
    result = ToolResult("demo_1", (TextPart(text),), is_error=failed, structured=data)
    turn = (user("x"), assistant("", ToolCall("demo_1", "srv__x", {"a": data})), tool_results(result))
    assert ask(ModelRequest(turn, EVERYTHING, choice)).message.tool_calls == ()


@pytest.mark.parametrize(
    "piece", ['"', "“", "「", "a ", "in ", "in A, ", ": ", " and", "東", "の", "1-", "\n", " ", "-", "limit 1"]
)
def test_long_and_hostile_text_is_read_in_bounded_time(piece: str) -> None:
    start = time.process_time()
    ask(ModelRequest((user("add a note " + piece * (20_000 // len(piece))),), EVERYTHING))
    ask(ModelRequest((user("weather " + piece * (19_000 // len(piece))),), EVERYTHING))
    assert time.process_time() - start < 5


def test_the_items_of_a_list_may_be_described_elsewhere_in_the_schema() -> None:
    colours = {"type": "array", "items": {"$ref": "#/$defs/Colour"}}
    schema = {
        "type": "object",
        "properties": {"colours": colours},
        "required": ["colours"],
        "$defs": {"Colour": {"enum": ["red", "blue"]}},
    }
    tool = Tool("srv__add_note", "srv", "add_note", input_schema=schema)
    asked = ask(ModelRequest((user("add a note"),), (tool,))).message
    for answer, found in (("add", []), ("blue", [{"colours": ["blue"]}])):
        message = ask(ModelRequest((user("add a note"), asked, user(answer)), (tool,))).message
        assert [dict(call.arguments) for call in message.tool_calls] == found
