"""Ids and names in the form vendors take back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from bot.llm.wire_values import CallIds, distinct_ids, valid_name


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
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", each) for each in written)


@given(st.lists(st.sampled_from(["", "a", "b", "call_1", "call_2", "call_2_2"]), max_size=6))
def test_ids_of_a_reply_are_distinct_and_given_ones_are_kept(given_ids: list[str]) -> None:
    ids = distinct_ids(given_ids)
    assert len(set(ids)) == len(ids) == len(given_ids)
    assert "" not in ids
    assert set(given_ids) - {""} <= set(ids)


@given(st.text(max_size=100))
def test_names_are_accepted(name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", valid_name(name))
