"""Markdown texts split into messages."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rendering.markdown import SizeLimit, split, split_once, text_weight
from bot.rendering.text_safety import strip_control
from tests.rendering.markdown_texts import ANY, LARGE

ROOM = SizeLimit(700, 1_100)
SENTENCE = "A sentence of some length. " * 10


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)


def begins_with_all_of(longer: str, shorter: str) -> bool:
    rest = iter(longer)
    return all(letter in rest for letter in shorter)


def test_a_text_that_fits_stays_in_one_piece() -> None:
    assert split("Hello.\n", ROOM) == ("Hello.\n",)
    assert split("", ROOM) == ()


def test_a_message_ends_where_a_block_does() -> None:
    first, second = split(f"{SENTENCE}\n\n{SENTENCE}\n\n{SENTENCE}\n\nLast.", ROOM)
    assert first.endswith(". \n\n")
    assert second == "Last."


def test_an_open_code_block_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {number} of it" for number in range(100))
    words = split(f"Look:\n\n```python\n{code}\n```\nDone.", ROOM)
    assert all(part.count("```") == 2 for part in words)
    assert all(part.startswith("```python\n") for part in words[1:])
    inner = [line for part in words for line in part.split("\n") if line.startswith("line")]
    assert inner == code.split("\n")
    assert words[-1].endswith("\n```\nDone.")


def test_a_code_block_in_a_list_moves_to_the_left() -> None:
    code = "\n".join(f"  line {number} of it" for number in range(80))
    words = split(f"- ```sh\n{code}\n  ```\n- next", ROOM)
    assert words[0].endswith("\n  ```")
    assert words[1].startswith("```sh\nline ")
    assert words[-1].endswith("\n```\n- next")


def test_a_table_begins_again_with_its_headings() -> None:
    rows = "\n".join(f"| row {number} | some value |" for number in range(80))
    words = split(f"| name | value |\n|---|---|\n{rows}\n\nAfter.", ROOM)
    assert all(part.startswith("| name | value |\n|---|---|\n| row") for part in words)


def test_headings_are_not_parted_from_the_line_below_them() -> None:
    lines = "123456789\n" * 93
    first, second = split(f"{lines}| a | bb |\n|---|----|\n| 1 | 22 |\n| 3 | 44 |", ROOM)
    assert first.endswith("9\n| a | bb |\n|---|----|\n")
    assert second == "| a | bb |\n|---|----|\n| 1 | 22 |\n| 3 | 44 |"


def test_a_nested_list_goes_on_as_a_list() -> None:
    items = "\n".join(f"   - item number {number}" for number in range(60))
    words = split(f"1. one\n{items}\n2. two", ROOM)
    assert words[1].startswith("- item number")
    assert words[-1].endswith("\n2. two")


def test_a_line_without_end_is_cut_between_words_and_without_words_anywhere() -> None:
    assert all(part.endswith("word ") for part in split("word " * 1_000, ROOM)[:-1])
    assert [len(part) for part in split("x" * 2_500, ROOM)] == [1_100, 1_100, 300]


def test_where_there_is_no_room_nothing_goes_in() -> None:
    assert split_once("Hello", ROOM.rest_after(1_100)) == ("", "Hello")


@pytest.mark.parametrize(("text", "size"), [("abc", 3), ("é", 1), ("日本", 2), ("🎉", 2), ("<&>", 3 + 3 + 4 + 3)])
def test_the_weight_counts_characters_and_not_bytes(text: str, size: int) -> None:
    assert text_weight(text) == size


@given(ANY)
def test_no_message_is_too_large_and_no_letter_is_lost(text: str) -> None:
    words = split(strip_control(text), ROOM)
    assert all(text_weight(part) <= ROOM.most for part in words)
    assert begins_with_all_of(letters("".join(words)), letters(strip_control(text)))


@given(LARGE, st.integers(0, 30_000))
def test_a_growing_text_keeps_its_first_messages(text: str, end: int) -> None:
    text = strip_control(text)
    for early, late in zip(split(text[:end], ROOM), split(text, ROOM), strict=False):
        assert late.startswith(early.rstrip())
