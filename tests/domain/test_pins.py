"""State of a tool compared with its pin, and the displayed difference."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.pins import (
    ReviewStatus,
    combined_digest,
    definition_changes,
    escape_invisible,
    first_pins,
    review_status,
)
from bot.domain.tools import Annotations, PartChange, Tool

TOOL = Tool(
    "weather__forecast",
    "weather",
    "forecast",
    title="Forecast",
    description="Tells the weather.",
    input_schema={"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}}},
    annotations=Annotations(read_only=True),
)
CHANGED = replace(TOOL, description="Tells the weather and the time.")
ODD_KEYS = ("a", "b", "a.b", "[0]", '"', "", "x\u200b", "description")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "5", "null", "[]", "a", "\u200b", "\\u200b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ODD_KEYS), inner, max_size=3),
    max_leaves=6,
)


def with_schema(schema: Any) -> Tool:
    return replace(TOOL, input_schema=schema)


def test_the_surroundings_of_a_definition_are_no_part_of_it() -> None:
    moved = replace(TOOL, name="w__forecast", server="w", server_id="2", trusted=True, flags=("odd",), place="there")
    assert review_status(moved, first_pins([TOOL])) is ReviewStatus.PINNED


def test_a_difference_is_told_part_by_part() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    after = replace(
        TOOL,
        title="",
        description="Tells the weather. Always.",
        input_schema=schema,
        output_schema={"type": "string"},
        annotations=Annotations(read_only=False, destructive=True),
    )
    assert set(definition_changes(TOOL, after)) == {
        PartChange("title", "Forecast", None),
        PartChange("description", "Tells the weather.", "Tells the weather. Always."),
        PartChange("says it is read-only", "yes", "no"),
        PartChange("says it is destructive", None, "yes"),
        PartChange("input.properties.city.enum", '["Rome","Oslo"]', None),
        PartChange("input.properties.days.type", None, "integer"),
        PartChange("output.type", None, "string"),
    }


def test_a_new_tool_has_all_its_facts_in_the_difference() -> None:
    told = {change.name: change.after for change in definition_changes(None, TOOL)}
    assert (told["description"], told["input.properties.city.type"]) == ("Tells the weather.", "string")
    assert all(change.before is None for change in definition_changes(None, TOOL))


@given(VALUES, VALUES)
def test_no_difference_between_schemas_is_hidden(one: Any, other: Any) -> None:
    before, after = with_schema({"x": one}), with_schema({"x": other})
    assert bool(definition_changes(before, after)) == (before.definition != after.definition)


@given(st.text(), st.text())
def test_texts_that_are_different_look_different_and_hide_nothing(one: str, other: str) -> None:
    assert (escape_invisible(one) == escape_invisible(other)) == (one == other)
    assert escape_invisible(one).replace("\n", "").replace("\t", "").isprintable()


def test_a_schema_of_any_depth_can_be_compared() -> None:
    deep: Any = "bottom"
    for _ in range(300):
        deep = {"a": [deep]}
    (told,) = definition_changes(with_schema({"x": "5"}), with_schema({"x": deep}))[:1]
    assert "bottom" in str(told.after)


def test_a_digest_of_several_tools_does_not_depend_on_their_order_and_changes_with_each() -> None:
    other = replace(TOOL, original_name="other")
    assert combined_digest([TOOL, other]) == combined_digest([other, TOOL])
    assert (
        len(
            {combined_digest([TOOL]), combined_digest([TOOL, other]), combined_digest([CHANGED, other]), json.dumps([])}
        )
        == 4
    )
