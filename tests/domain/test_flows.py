"""Trust in the text of tools, destinations of calls, and arguments that hold an address."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.flows import NO_FLOWS, Sends, ServerFlows, Words, takes_address

LINK = {"type": "object", "properties": {"at": {"type": "string", "format": "uri"}}}


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        ({"properties": {"query": {}, "max_results": {}, "linkedTo": {}}}, False),
        ({"properties": {"URL": {}}}, True),
        ({"properties": {"base_url": {}}}, True),
        ({"properties": {"sourceUrl": {}}}, True),
        ({"properties": {"pages": {"type": "array", "items": LINK}}}, True),
        ({"properties": {"page": {"anyOf": [{"type": "null"}, LINK]}}}, True),
        ({"properties": {"page": {"$ref": "#/$defs/Page"}}, "$defs": {"Page": LINK}}, True),
        ({"properties": {"page": "nonsense"}}, False),
        (None, False),
    ],
)
def test_an_argument_takes_an_address_by_its_name_or_its_format(schema: Any, takes: bool) -> None:
    assert takes_address(schema) is takes


def test_a_schema_that_is_nested_too_deeply_counts_as_taking_an_address() -> None:
    schema: dict[str, Any] = {"properties": {"query": {}}}
    for _ in range(20):
        schema = {"properties": {"inner": schema}}
    assert takes_address(schema)


@pytest.mark.parametrize(
    ("before", "after", "loosens"),
    [
        (NO_FLOWS, NO_FLOWS, False),
        (NO_FLOWS, ServerFlows(Words.STRANGERS, Sends.WORLD), False),
        (NO_FLOWS, ServerFlows(Words.SHARED), True),
        (NO_FLOWS, ServerFlows(sends=Sends.TEAM), True),
        (ServerFlows(Words.STRANGERS), NO_FLOWS, True),
        (ServerFlows(Words.OWN), ServerFlows(Words.SHARED), False),
        (ServerFlows(Words.SHARED), ServerFlows(Words.OWN), True),
        (ServerFlows(Words.SHARED), ServerFlows(Words.SHARED, tool_words={"x": Words.OWN}), True),
        (ServerFlows(Words.SHARED, tool_words={"x": Words.STRANGERS}), ServerFlows(Words.SHARED), True),
        (ServerFlows(Words.OWN), ServerFlows(Words.OWN, tool_words={"x": Words.STRANGERS}), False),
        (NO_FLOWS, ServerFlows(tool_sends={"x": Sends.CLOSED}), True),
        (NO_FLOWS, ServerFlows(tool_recipients={"x": ("to",)}), True),
        (ServerFlows(tool_recipients={"x": ("to", "cc")}), ServerFlows(tool_recipients={"x": ("to",)}), True),
        (ServerFlows(tool_recipients={"x": ("to",)}), ServerFlows(tool_recipients={"x": ("to", "cc")}), False),
        (ServerFlows(tool_recipients={"x": ("to",)}), NO_FLOWS, False),
    ],
)
def test_a_change_after_which_a_call_may_ask_less_often_loosens(
    before: ServerFlows, after: ServerFlows, loosens: bool
) -> None:
    assert after.loosens(before) is loosens
