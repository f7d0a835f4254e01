from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.servers import Prompt, PromptArgument, Resource, ResourceTemplate, ServerCapabilities
from bot.domain.tools import Annotations, Tool
from bot.storage.admin.capabilities import decode_capabilities, definitions_text, same_offer
from bot.storage.codec import encode_text

texts = st.text(st.characters(exclude_categories=()), max_size=8)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
schemas = st.dictionaries(texts, values, max_size=4)
hints = st.none() | st.booleans()
tools = st.builds(
    Tool,
    name=texts,
    server=texts,
    original_name=texts,
    title=texts,
    description=texts,
    input_schema=schemas,
    output_schema=st.none() | schemas,
    annotations=st.builds(Annotations, hints, hints, hints, hints),
    trusted=st.booleans(),
    server_id=texts,
)
resources = st.builds(Resource, texts, texts, texts, texts, texts, st.none() | st.integers())
templates = st.builds(ResourceTemplate, texts, texts, texts, texts, texts)
arguments = st.lists(st.builds(PromptArgument, texts, texts, st.booleans()), max_size=2).map(tuple)
prompts = st.builds(Prompt, texts, texts, texts, arguments)


def some(each: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(each, max_size=3).map(tuple)


offers = st.builds(ServerCapabilities, some(tools), some(resources), some(templates), some(prompts), texts, texts)


@given(offers)
def test_capabilities_of_any_server_come_back_exactly(offer: ServerCapabilities) -> None:
    text = encode_text(offer)
    again = decode_capabilities(text)
    assert again == offer
    assert [tool.definition for tool in again.tools] == [tool.definition for tool in offer.tools]
    assert encode_text(again) == text
    assert text.isascii()
    assert "\0" not in text
    assert same_offer(text, text)


@given(offers, offers)
def test_only_offered_items_make_a_difference(one: ServerCapabilities, other: ServerCapabilities) -> None:
    def sorted_items(offer: ServerCapabilities) -> list[list[str]]:
        kinds = (offer.tools, offer.resources, offer.templates, offer.prompts)
        return [sorted(map(repr, kind)) for kind in kinds]

    if sorted_items(one) == sorted_items(other):
        assert same_offer(encode_text(one), encode_text(other))


def test_a_tool_is_stored_by_its_fields_with_the_fingerprint_of_its_definition() -> None:
    tool = Tool("s__run", "s", "run", "Run", "runs", MappingProxyType({"type": "object"}), None, Annotations(True))
    offer = ServerCapabilities(tools=(tool,))
    (body,) = json.loads(encode_text(offer))["tools"]
    stored = {key: body[key] for key in ("original_name", "title", "description", "input_schema", "output_schema")}
    assert stored == {
        "original_name": "run",
        "title": "Run",
        "description": "runs",
        "input_schema": {"type": "object"},
        "output_schema": None,
    }
    assert body["annotations"]["read_only"] is True
    assert not {"place", "flow"} & body.keys()
    assert json.loads(definitions_text(offer)) == {"run": tool.definition}


def test_a_number_that_is_none_does_no_harm() -> None:
    tool = Tool("s__run", "s", "run", input_schema={"maximum": float("nan"), "items": [float("inf")]})
    read = decode_capabilities(encode_text(ServerCapabilities(tools=(tool,))))
    assert read.tools[0].input_schema == {"maximum": None, "items": [None]}
