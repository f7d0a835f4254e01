"""Effect of a tool's hints, and the values that an approval is bound to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import fingerprint
from bot.domain.tools import Annotations, Risk, ServerGuidance, Tool, ToolSet, canonical_json

TOOL = Tool("s__t", "s", "t", description="Does it.", trusted=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def tool(*, trusted: bool, **hints: bool) -> Tool:
    return replace(TOOL, annotations=Annotations(**hints), trusted=trusted)


def test_a_trusted_servers_hints_lower_the_risk() -> None:
    reader = tool(trusted=True, read_only=True)
    assert (reader.read_only, reader.repeatable, reader.destructive) == (True, True, False)
    writer = tool(trusted=True, read_only=False, destructive=False, idempotent=True)
    assert (writer.read_only, writer.repeatable, writer.destructive) == (False, True, False)


def test_an_untrusted_servers_hints_lower_nothing() -> None:
    liar = tool(trusted=False, read_only=True, idempotent=True)
    assert (liar.read_only, liar.repeatable, liar.destructive) == (False, False, True)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_hint_can_raise_the_risk_without_trust(trusted: bool) -> None:
    assert tool(trusted=trusted, destructive=True).destructive


@pytest.mark.parametrize("hints", [{}, {"read_only": True}, {"destructive": False}, {"read_only": False}])
def test_of_a_server_without_trust_no_hint_lowers_anything_and_the_risk_is_unknown(hints: dict[str, bool]) -> None:
    untrusted = tool(trusted=False, **hints)
    assert (untrusted.read_only, untrusted.destructive, untrusted.risk) == (False, True, Risk.UNKNOWN)


def test_a_server_without_trust_that_says_it_destroys_is_shown_as_such() -> None:
    assert tool(trusted=False, destructive=True).risk is Risk.DESTRUCTIVE


def test_silence_is_no_hint() -> None:
    silent = tool(trusted=True)
    assert (silent.read_only, silent.repeatable) == (False, False)
    assert not tool(trusted=True, read_only=False).read_only
    assert not tool(trusted=True, idempotent=False).repeatable
    assert tool(trusted=False).destructive


def test_a_reader_that_also_says_it_destroys_is_taken_for_a_reader_only_on_trust() -> None:
    assert not tool(trusted=True, read_only=True, destructive=True).destructive
    assert tool(trusted=False, read_only=True, destructive=True).destructive


@pytest.mark.parametrize(
    "change",
    [
        {"original_name": "u"},
        {"title": "New"},
        {"description": "Does it not."},
        {"input_schema": {"type": "object", "properties": {"x": {}}}},
        {"output_schema": {"type": "object"}},
        {"annotations": Annotations(read_only=True)},
        {"annotations": Annotations(destructive=False)},
        {"annotations": Annotations(idempotent=True)},
        {"annotations": Annotations(open_world=True)},
    ],
)
def test_any_different_text_of_a_server_is_another_definition(change: dict[str, Any]) -> None:
    changed = replace(TOOL, **change)
    assert changed.definition != TOOL.definition
    assert fingerprint(changed, {}) != fingerprint(TOOL, {})


def test_an_approval_is_bound_to_server_tool_and_exact_arguments() -> None:
    signed = fingerprint(TOOL, {"to": "ana", "n": 1})
    assert fingerprint(TOOL, {"n": 1, "to": "ana"}) == signed
    for arguments in (
        {},
        {"to": "ana"},
        {"to": "ana", "n": 2},
        {"to": "ana", "n": "1"},
        {"to": "ana", "n": 1, "x": None},
    ):
        assert fingerprint(TOOL, arguments) != signed
    assert fingerprint(replace(TOOL, server="other"), {"to": "ana", "n": 1}) != signed
    assert fingerprint(replace(TOOL, server_id="other"), {"to": "ana", "n": 1}) != signed


def test_the_name_of_a_tool_for_the_model_is_no_part_of_its_fingerprint() -> None:
    assert fingerprint(replace(TOOL, name="s__t_2"), {}) == fingerprint(TOOL, {})


@given(JSON)
def test_arguments_that_were_stored_and_read_again_equal_the_approved_ones(value: Any) -> None:
    assert fingerprint(TOOL, {"x": json.loads(json.dumps(value))}) == fingerprint(TOOL, {"x": value})


@given(JSON)
def test_the_canonical_text_is_the_value_itself(value: Any) -> None:
    assert json.loads(canonical_json(value)) == value


def test_a_value_has_one_spelling() -> None:
    assert canonical_json({"b": [1, "ü"], "a": {"y": None, "x": True}}) == '{"a":{"x":true,"y":null},"b":[1,"ü"]}'


def test_half_a_character_in_a_schema_has_a_digest_too() -> None:
    broken = replace(TOOL, input_schema={"type": "object", "properties": {"\ud83d": {}}})
    assert broken.definition != TOOL.definition


def test_a_tool_and_its_servers_guidance_are_found_by_name_or_not_at_all() -> None:
    guidance = ServerGuidance("s", "Be exact.")
    offered = ToolSet((TOOL,), (guidance,))
    assert offered.find("s__t") is TOOL
    assert offered.find("t") is None
    assert offered.guidance_for("s") is guidance
    assert offered.guidance_for("other") == ServerGuidance("other")
