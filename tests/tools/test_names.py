"""The names under which tools are offered."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bot.tools.names import offered_name

SERVERS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
TRICKY = st.text("ab_ .", max_size=6)


def test_a_plain_pair_is_joined() -> None:
    assert offered_name("weather", "get_forecast") == "weather__get_forecast"


def test_other_characters_become_underscores_and_the_name_is_marked() -> None:
    assert re.fullmatch(r"s__get_weather_now_[0-9a-f]{8}", offered_name("s", "get.weather now"))


def test_long_names_are_cut_and_told_apart() -> None:
    first, second = offered_name("s", "x" * 100 + "1"), offered_name("s", "x" * 100 + "2")
    assert len(first) == len(second) == 64
    assert first != second


def test_the_border_between_server_and_tool_cannot_be_moved() -> None:
    assert offered_name("a__b", "c") != offered_name("a", "b__c")
    assert offered_name("a_", "b") != offered_name("a", "_b")


def test_a_name_that_imitates_a_marked_one_is_marked_itself() -> None:
    marked = offered_name("s", "a b")
    assert offered_name("s", marked.removeprefix("s__")) != marked


@given(SERVERS, st.text(min_size=1, max_size=100))
def test_every_name_is_one_that_models_take(server: str, tool: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", offered_name(server, tool))


@given(st.lists(st.tuples(st.text("ab_", min_size=1, max_size=5), TRICKY), unique=True, max_size=60))
def test_different_pairs_have_different_names(pairs: list[tuple[str, str]]) -> None:
    assert len({offered_name(*pair) for pair in pairs}) == len(pairs)
