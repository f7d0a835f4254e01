"""Presses, fallbacks and small blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import AlreadySettled, NoSuchApproval, NotAllowed, OutOfDate, Settled, Settlement, Verdict
from bot.platforms.slack.blocks import button, buttons, fallback, small
from bot.platforms.slack.presses import read, written
from bot.reception.presses import Approve, AskToConfirm, AskWhyNot, CardRef, Opinion, Press, Rate, Review, Run, ViewAll
from bot.reception.refusals import GONE, OUT_OF_DATE, refused
from bot.rendering.offers import Check, RunAgain, Stop
from tests.platforms.slack.accepted import check_message

CARDS = st.builds(CardRef, st.text(max_size=40), st.integers(0, 99))
WORDS = st.lists(st.text(max_size=40), min_size=1, max_size=6).map(tuple)
PRESSES: st.SearchStrategy[Press] = st.one_of(
    st.builds(Approve, st.lists(CARDS, min_size=1, max_size=8).map(tuple)),
    st.builds(AskWhyNot, CARDS),
    st.builds(ViewAll, CARDS, st.integers(1, 99)),
    st.builds(Review, st.text(max_size=40)),
    st.builds(Check, st.text(max_size=40), st.integers(0, 99)),
    st.builds(RunAgain, st.text(max_size=40), st.integers(0, 99)),
    st.builds(Stop, st.text(max_size=40)),
    st.builds(Rate, st.text(max_size=40), st.sampled_from(Opinion)),
    st.builds(Run, WORDS),
    st.builds(AskToConfirm, WORDS, st.text(max_size=40), st.text(max_size=40)),
)


@given(PRESSES)
def test_what_is_written_into_a_button_is_read_back(press: Press) -> None:
    names = written(press)
    assert names is not None
    assert read(*names) == press
    assert read(f"{names[0]}.7", names[1]) == press


@given(st.text(max_size=30), st.sampled_from(["approve", "deny", "view", "check", "rate", "run", "confirm", "x"]))
def test_a_value_that_is_none_of_ours_means_nothing(value: str, kind: str) -> None:
    assert read(f"other.{kind}", value) is None
    if not value.startswith("["):
        assert read(f"cs.{kind}", value) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [("approve", "[]"), ("approve", '["a"]'), ("approve", '[["a","b"]]'), ("deny", '["a"]'), ("rate", '["t","meh"]'),
     ("run", "[]"), ("confirm", '["a","b"]'), ("view", '["a",1]'), ("stop", "[1]"), ("run", "{}")],
)  # fmt: skip
def test_a_value_of_another_shape_means_nothing(kind: str, value: str) -> None:
    assert read(f"cs.{kind}", value) is None


def test_what_slack_would_not_take_is_not_written() -> None:
    assert written(Run(("x" * 2_001,))) is None
    assert button("Go", Run(("x" * 2_001,))) is None


def test_buttons_of_one_kind_are_told_apart_and_many_get_further_blocks() -> None:
    made = buttons([button(str(number), Run((str(number),))) for number in range(30)])
    assert [len(block["elements"]) for block in made] == [25, 5]
    check_message(made, "x")
    values = [read(each["action_id"], each["value"]) for block in made for each in block["elements"]]
    assert values == [Run((str(number),)) for number in range(30)]


def test_a_fallback_is_escaped_and_mentions_nobody() -> None:
    assert fallback("<!channel> & <@U1> @here ana@example.com") == (
        "&lt;!channel&gt; &amp; &lt;@\u2060U1&gt; @\u2060here ana@example.com"
    )


@given(st.text(max_size=6_000))
def test_a_fallback_always_fits_and_never_ends_within_an_entity(text: str) -> None:
    made = fallback(text)
    assert 0 < len(made.encode()) <= 4_000
    assert "<" not in made
    assert "&" not in made.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


def test_a_fallback_is_as_long_as_slack_takes_whatever_its_letters_weigh() -> None:
    assert fallback("x" * 4_000) == "x" * 4_000
    assert fallback("x" * 4_001) == "x" * 3_997 + "…"
    assert fallback("ä" * 2_000) == "ä" * 2_000
    assert fallback("雨" * 2_000) == "雨" * 1_332 + "…"
    assert fallback("&" * 801) == "&amp;" * 799 + "…"


def test_many_small_lines_get_further_blocks() -> None:
    made = small(*("x" * 200 for _ in range(40)))
    check_message(made, "x")
    assert sum(block["elements"][0]["text"].count("\n") + 1 for block in made) == 40


@pytest.mark.parametrize(
    ("settlement", "told"),
    [
        (Settled(Verdict.APPROVE), ""),
        (AlreadySettled("Already approved by Sam."), "Already approved by Sam."),
        (NotAllowed("Only @ops may."), "Only @ops may."),
        (OutOfDate(), OUT_OF_DATE),
        (NoSuchApproval(), GONE),
    ],
)
def test_whoever_pressed_in_vain_is_told_why(settlement: Settlement, told: str) -> None:
    assert refused(settlement) == told
