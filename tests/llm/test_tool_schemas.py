"""Schemas of tools in the form that the vendors' services accept."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from bot.domain.completions import ModelRequest
from bot.domain.messages import user
from bot.domain.tools import OWN_SERVER, Tool
from bot.llm import anthropic, openai_chat, openai_responses
from bot.llm.tool_schemas import LARGEST_SCHEMA, LONGEST_DESCRIPTION
from bot.mcp.argument_validation import validate
from tests.fakes.llm_schemas import anthropic_complaint, openai_complaint
from tests.llm.schemas import LISTED, proper_and_calls

Json = dict[str, Any]


def tool(schema: Any, description: str = "") -> Tool:
    return Tool("s__t", "s", "t", description=description, input_schema=schema)


def for_openai(schema: Any) -> Json:
    body = openai_chat.request_body("m", ModelRequest((user("?"),), (tool(schema),)), own_address=True)
    sent: Json = body["tools"][0]["function"]["parameters"]
    return sent


def for_anthropic(schema: Any) -> Json:
    body = anthropic.request_body("m", ModelRequest((user("?"),), (tool(schema),)), own_address=True)
    sent: Json = body["tools"][0]["input_schema"]
    return sent


EACH = pytest.mark.parametrize("sent", [for_openai, for_anthropic])


@given(LISTED)
def test_no_schema_that_a_server_can_list_is_one_that_a_service_refuses(listed: Json) -> None:
    assert openai_complaint("t", for_openai(listed)) is None
    assert anthropic_complaint(for_anthropic(listed)) is None


@given(LISTED)
def test_a_sent_schema_is_always_the_same_text(listed: Json) -> None:
    before = copy.deepcopy(listed)
    sent = for_anthropic(listed)
    assert repr(listed) == repr(before)
    assert json.dumps(for_anthropic(before)) == json.dumps(sent)
    assert json.dumps(for_anthropic(sent)) == json.dumps(sent)
    assert json.dumps(for_openai(for_openai(listed))) == json.dumps(for_openai(listed))


@given(proper_and_calls())
def test_arguments_that_a_server_takes_are_never_ruled_out(made: tuple[Json, list[Json]]) -> None:
    listed, calls = made
    judges = [Draft202012Validator(sent(listed)) for sent in (for_openai, for_anthropic)]
    for arguments in calls:
        try:
            taken = Draft202012Validator(listed).is_valid(arguments)
        except RecursionError:  # a definition that refers only to itself
            continue
        for judge in judges if taken else ():
            judge.validate(arguments)


@given(proper_and_calls())
def test_arguments_are_judged_by_the_server_s_own_schema(made: tuple[Json, list[Json]]) -> None:
    listed, calls = made
    offered = tool(listed)
    before = [validate(listed, arguments) for arguments in calls]
    for_openai(listed)
    assert [validate(offered.input_schema, arguments) for arguments in calls] == before


def only(schema: Json) -> Json:
    """Return the schema of a single argument in the form for OpenAI."""
    simplified: Json = for_openai({"type": "object", "properties": {"a": schema}})["properties"]["a"]
    return simplified


@pytest.mark.parametrize(
    ("listed", "sent"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}, "additionalProperties": True}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"const": "x", "type": "string"}, {"type": "string", "enum": ["x"]}),
        ({"type": "string", "enum": ["a", 1, "a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "(format: uri)"}),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "description": '(pattern: "^a")'}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "minimum": 1}),
        ({"type": "integer", "maximum": 10**30}, {"type": "integer"}),
        ({"type": "any"}, {}),
        ({"title": "City"}, {"description": "City"}),
        ({"anyOf": [{"type": "string"}]}, {"type": "string"}),
        ({"anyOf": [{"type": "string"}, True]}, {}),
        ({"anyOf": [{"type": "string"}, False]}, {"type": "string"}),
        (
            {"oneOf": [{"type": "string"}, {"type": "null"}], "description": "Why."},
            {"description": "Why.", "anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"allOf": [{"type": "number", "minimum": 1}, {"type": "integer", "minimum": 2}]},
            {"type": "integer", "minimum": 2},
        ),
        (
            {"type": "array", "items": [{"type": "string"}, {"type": "number"}], "additionalItems": False},
            {
                "type": "array",
                "description": "(in this order: string, number)",
                "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            },
        ),
    ],
    ids=lambda given: json.dumps(given)[:60],
)
def test_an_argument_keeps_its_meaning_in_words_that_services_take(listed: Json, sent: Json) -> None:
    assert only(listed) == sent


@EACH
def test_references_within_the_schema_are_written_out(sent: Any) -> None:
    listed = {
        "properties": {
            "by_pointer": {"$ref": "#/$defs/a~1b%20c", "description": "Mine."},
            "by_anchor": {"$ref": "#there"},
            "by_way": {"$ref": "#/properties/list/items"},
            "list": {"type": "array", "items": {"type": "integer"}},
        },
        "$defs": {"a/b c": {"type": "string", "description": "Its own."}, "x": {"$anchor": "there", "type": "boolean"}},
    }
    assert sent(listed)["properties"] == {
        "by_pointer": {"type": "string", "description": "Mine."},
        "by_anchor": {"type": "boolean"},
        "by_way": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "integer"}},
    }


@EACH
def test_a_reference_to_itself_ends(sent: Any) -> None:
    listed = {
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
            }
        },
    }
    assert sent(listed)["properties"]["tree"]["properties"] == {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {}},
    }


@EACH
def test_a_reference_that_leaves_the_schema_means_anything(sent: Any) -> None:
    listed = {"properties": {"a": {"$ref": "https://example.com/s.json#/a", "description": "Elsewhere."}}}
    assert sent(listed)["properties"] == {"a": {"description": "Elsewhere."}}


@EACH
def test_several_ways_to_call_a_tool_become_one(sent: Any) -> None:
    listed = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "verbose": {"type": "boolean"}},
        "required": ["verbose"],
        "oneOf": [{"required": ["id"]}, {"required": ["name"], "properties": {"name": {"type": "string"}}}],
    }
    assert sent(listed) == {
        "type": "object",
        "description": "(required: (id) or (name))",
        "properties": {"id": {"type": "string"}, "verbose": {"type": "boolean"}, "name": {"type": "string"}},
        "required": ["verbose"],
    }


def test_an_argument_with_a_refused_name_is_described_and_may_still_be_given() -> None:
    listed = {
        "type": "object",
        "properties": {"$filter": {"type": "string"}, "top": {"type": "integer"}},
        "required": ["$filter", "top"],
        "additionalProperties": False,
    }
    assert for_openai(listed) == listed
    assert for_anthropic(listed) == {
        "type": "object",
        "description": '(also takes "$filter" (string required))',
        "properties": {"top": {"type": "integer"}},
        "required": ["top"],
    }


def branching(width: int, depth: int) -> Json:
    within = branching(width, depth - 1) if depth else {"type": "string", "description": "Something long. " * 20}
    return {"type": "object", "properties": {f"p{n}": within for n in range(width)}, "required": ["p0"]}


@EACH
@pytest.mark.parametrize(
    "listed",
    [
        branching(150, 0),
        branching(3000, 0),
        branching(8, 2),
        branching(1, 200),
        {"properties": {"a": {"enum": [f"{n}" for n in range(10_000)]}}},
        {"properties": {"a": {"anyOf": [{"const": n} for n in range(10_000)]}}},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}] * 40}, "b": {"allOf": [{"$ref": "#/$defs/a"}] * 40}}}
        | {"properties": {"x": {"$ref": "#/$defs/a"}}},
        {"properties": {"k" * 100: {"type": "string"}}, "description": "y" * 5000},
    ],
    ids=["wide", "very wide", "large", "deep", "values", "branches", "references", "names"],
)
def test_a_schema_over_the_limits_is_made_to_fit(sent: Any, listed: Json) -> None:
    simplified = sent(listed)
    assert len(json.dumps(simplified, separators=(",", ":"), ensure_ascii=False)) <= LARGEST_SCHEMA
    assert openai_complaint("t", simplified) is None
    assert anthropic_complaint(simplified) is None or sent is for_openai


def test_a_large_schema_loses_words_before_it_loses_arguments() -> None:
    simplified = for_openai(branching(150, 0))
    assert len(simplified["properties"]) == 150
    assert all(parameter["type"] == "string" for parameter in simplified["properties"].values())


def test_a_long_description_of_a_tool_is_cut_to_the_limit_of_services() -> None:
    request = ModelRequest((user("?"),), (tool({}, "x" * 5000),))
    for described in (
        openai_chat.request_body("m", request, own_address=True)["tools"][0]["function"],
        anthropic.request_body("m", request, own_address=True)["tools"][0],
    ):
        assert len(described["description"]) == LONGEST_DESCRIPTION
        assert described["description"].endswith("x…")


def test_the_bot_s_own_descriptions_are_sent_whole_and_those_of_servers_are_cut() -> None:
    names = ", ".join(f"tool_{n}" for n in range(3_000))
    schema = {"type": "object", "properties": {"names": {"type": "string", "description": names}}}
    own = Tool("countersign__search_tools", OWN_SERVER, "search_tools", input_schema=schema)
    request = ModelRequest((user("?"),), (own, dataclasses.replace(own, server="other", server_id="id-other")))
    for mine, theirs in (
        [tool["function"]["parameters"] for tool in openai_chat.request_body("m", request, own_address=True)["tools"]],
        [tool["input_schema"] for tool in anthropic.request_body("m", request, own_address=True)["tools"]],
        [tool["parameters"] for tool in openai_responses.request_body("m", request, own_address=True)["tools"]],
    ):
        assert mine["properties"]["names"]["description"] == names
        assert len(theirs["properties"]["names"]["description"]) == LONGEST_DESCRIPTION
