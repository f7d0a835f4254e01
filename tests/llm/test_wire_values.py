"""Values for the wire: text that services accept, ids of calls, names of tools."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.llm.wire_format import CallIds, distinct_ids, replace_surrogates, single_line, valid_name, without_keys


def test_well_formed_text_stays_as_it_is() -> None:
    assert replace_surrogates("Malmö 🌧 日本") == "Malmö 🌧 日本"


def test_two_halves_of_a_pair_become_the_character_and_one_half_is_replaced() -> None:
    assert replace_surrogates("\ud83c\udf27") == "🌧"
    assert replace_surrogates("a\ud83c") == "a\ufffd"


def test_one_line_has_no_control_characters_and_a_limit() -> None:
    assert single_line("a\r\n\tb\x1b[0m\u2028c", 20) == "a b [0m c"
    assert single_line("x" * 50, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    "text",
    ["sk-abcdef123", "key=hunter-two", "Bearer abc.def-123", "sk-ab***xy", "pk_live_12345678", "(sk-proj-abc_def)"],
)
def test_keys_and_likely_keys_are_removed(text: str) -> None:
    cleaned = without_keys(f"wrong: {text}!", "hunter-two")
    for secret in ("abcdef", "hunter", "abc.def", "sk-ab", "12345678", "abc_def"):
        assert secret not in cleaned
    assert cleaned.startswith("wrong: ")


@pytest.mark.parametrize(
    "shown",
    [
        "0123456789ab****",
        "***456789abcdef",
        "x-api-key=0123456789abcdef;",
        "(23456789)",
        "0123\u200b4567\u206089abcdef",
        "\uff10123456789abcdef",
    ],
)
def test_parts_of_a_key_of_any_form_are_taken_out(shown: str) -> None:
    cleaned = without_keys(f"wrong key {shown} here", "0123456789abcdef")
    assert "456789" not in cleaned.replace("\u200b", "").replace("\u2060", "")
    assert cleaned.startswith("wrong key ")
    assert cleaned.endswith(" here")


def test_ordinary_words_are_not_mistaken_for_keys() -> None:
    assert without_keys("the task-list is risky, ask the bearer", "") == "the task-list is risky, ask the bearer"


def test_ids_that_are_fine_stay_as_they_are() -> None:
    ids = CallIds()
    assert ids.of_call("toolu_01A-b") == "toolu_01A-b"
    assert ids.of_result("toolu_01A-b") == "toolu_01A-b"


@given(st.lists(st.text(max_size=50), max_size=8))
def test_every_call_gets_an_accepted_id_of_its_own_and_its_result_finds_it(names: list[str]) -> None:
    ids = CallIds()
    written = []
    for name in names:
        written.append(ids.of_call(name))
        assert ids.of_result(name) == written[-1]
    assert len(set(written)) == len(written)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call_id) for call_id in written)


@given(st.lists(st.sampled_from(["", "a", "b", "call_1", "call_2", "call_2_2"]), max_size=6))
def test_ids_of_a_reply_are_distinct_and_given_ones_are_kept(given_ids: list[str]) -> None:
    ids = distinct_ids(given_ids)
    assert len(set(ids)) == len(ids) == len(given_ids)
    assert "" not in ids
    assert set(given_ids) - {""} <= set(ids)


@given(st.text(max_size=100))
def test_names_are_accepted(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", valid_name(name))
