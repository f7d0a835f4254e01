"""Display of structured results: tables, lists of keys and one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.messages import TextPart, ToolResult
from bot.rendering.tables import MOST_COLUMNS, MOST_ROWS, WIDEST, format_for_people, summarize, widest

ITEMS = [
    {"sku": "A-1", "name": "Tea 緑茶", "stock": 12},
    {"sku": "B-22", "name": "Cup | saucer", "stock": None, "note": "*bold*\n| forged | row |"},
]


def result(*values: Any) -> ToolResult:
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    return ToolResult("c", tuple(map(TextPart, texts)))


def formatted_text(*values: Any) -> str:
    return format_for_people(result(*values))


TABLE = """\
sku   name          stock  note
────  ────────────  ─────  ───────────────────────
A-1   Tea 緑茶      12
B-22  Cup | saucer         *bold* | forged | row |"""


@pytest.mark.parametrize("values", [(ITEMS,), ({"result": ITEMS},), tuple(ITEMS), (json.dumps(ITEMS, indent=2),)])
def test_a_list_of_flat_objects_is_a_table_however_it_is_sent(values: tuple[Any, ...]) -> None:
    assert formatted_text(*values) == TABLE


def test_an_object_is_a_list_of_keys_and_its_nested_ones_are_below() -> None:
    value = {"id": 7, "名前": "茶", "open": True, "tags": ["a", "b"], "empty": {}, "lines": ITEMS[:1], "by": {"x": 1}}
    assert formatted_text(value).split("\n") == [
        "id     7",
        "名前   茶",
        "open   true",
        "tags   a, b",
        "empty  {}",
        "lines",
        "  sku  name      stock",
        "  ───  ────────  ─────",
        "  A-1  Tea 緑茶  12",
        "by",
        "  x  1",
    ]


def test_a_text_beside_it_stays_and_text_without_json_is_not_touched() -> None:
    assert formatted_text("Found one:", [{"a": 1}]) == "Found one:\na\n─\n1"
    for text in ("plain", "[not json", "{", "- a\n- b", "7", '"x"', "two\n  indented\tlines"):
        assert formatted_text(text) == text


def test_lists_of_other_things_have_a_line_for_each() -> None:
    assert formatted_text([1, "two", None]) == "- 1\n- two\n-"
    assert formatted_text([{"a": {"b": 1}}, [1, [2]]]) == "- a\n    b  1\n- - 1\n  - - 2"


def test_long_wide_and_deep_values_are_bounded_and_that_is_said() -> None:
    text = formatted_text([{"n": number} for number in range(MOST_ROWS + 5)])
    assert text.endswith("… 5 more rows")
    wide = {f"column {number}": "長い" * 30 for number in range(MOST_COLUMNS + 2)}
    text = formatted_text([wide])
    assert widest(text) <= WIDEST + MOST_COLUMNS
    assert text.endswith("… also: column 8, column 9")
    deep: Any = "bottom"
    for _ in range(6):
        deep = {"down": deep}
    assert formatted_text(deep).split("\n")[-1].strip() == '{"down": {"down": {"down": "bottom"}}}'
    assert formatted_text({f"k{number}": number for number in range(50)}).endswith("… 10 more keys")


def test_escaped_characters_that_hide_or_turn_text_are_removed_like_written_ones() -> None:
    assert formatted_text('{"a\\u202e": "x\\u001b[31m\\u200b\\u0000y\\nz"}') == "a  xy z"


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (ITEMS, "2 items: sku, name, stock, note"),
        ({"result": [{"a": 1}]}, "1 item: a"),
        ({"sku": "A-1", "stock": 12}, "sku A-1 · stock 12"),
        ([1, 2], "1, 2"),
        ([], ""),
        ({}, ""),
        ("text", ""),
    ],
)
def test_one_line_sums_up_the_result(value: Any, line: str) -> None:
    assert summarize(result(value), 72) == line


def test_texts_of_single_items_are_counted_and_a_text_beside_one_is_said_as_it_is() -> None:
    assert summarize(result(*ITEMS), 72) == "2 items: sku, name, stock, note"
    assert summarize(result("Found:", ITEMS[0]), 72) == ""
    assert summarize(result(), 72) == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


@given(json_values)
def test_every_value_is_drawn_without_control_characters(value: Any) -> None:
    text = formatted_text(json.dumps(value)) if isinstance(value, dict | list) else ""
    assert all(line.isprintable() or "\u00ad" in line for line in text.split("\n")) or not text.isascii()
    assert "\n" not in summarize(result(json.dumps(value)), 72)
