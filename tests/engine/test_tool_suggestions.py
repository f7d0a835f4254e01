"""Suggestions of tool names for an unknown name."""

from __future__ import annotations

from time import thread_time

import pytest

from bot.engine.policy.authorization import closest_names
from tests.fakes.parts import tool


@pytest.mark.parametrize("letters", ["ab", "abcd", "abcabd"])
def test_no_names_take_long_to_compare(letters: str) -> None:
    """A server chooses the names of its tools, and all turns wait during a comparison."""
    tools = [tool(f"s__{letters * 60}{n}") for n in range(1_000)]
    began = thread_time()
    for written in (letters * 60, letters[::-1] * 60, f"s__{letters[::-1] * 40}"):
        closest_names(written, tools)
    assert thread_time() - began < 1.5


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("note", "notes__add"),
        ("add_note", "notes__add"),
        ("addNote", "notes__add"),
        ("NotesAdd", "notes__add"),
        ("get_weather", "weather__forecast"),
        ("weather", "weather__forecast"),
        ("create_ticket_jira", "jira__create_ticket"),
    ],
)
def test_a_name_without_its_server_or_in_another_order_has_a_nearest_one(written: str, meant: str) -> None:
    tools = [tool(name) for name in ("notes__add", "weather__forecast", "jira__create_ticket", "mail__send")]
    assert closest_names(written, tools)[0] == meant


def test_the_likeliest_are_found_among_many_that_are_somewhat_like_it() -> None:
    tools = [tool(f"s__list_{noun}_{n}") for noun in ("notes", "tasks", "issues") for n in range(300)]
    assert closest_names("list_note_17", tools)[0] == "s__list_notes_17"
