"""Buttons, fallback texts and small blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import RunCommand
from bot.platforms.slack.blocks import button, buttons, decode, encode, fallback, small
from bot.rendering.timeline import StopTurnAction
from tests.platforms.slack.payload_checks import check_message


def test_a_button_of_another_app_means_nothing() -> None:
    names = encode(StopTurnAction("t1"))
    assert names is not None
    assert decode(*names) == StopTurnAction("t1")
    assert decode(f"{names[0]}.7", names[1]) == StopTurnAction("t1")
    assert decode("other.stop", names[1]) is None


def test_blocks_over_the_limits_of_slack_are_not_written() -> None:
    assert encode(RunCommand(("x" * 2_001,))) is None
    assert button("Go", RunCommand(("x" * 2_001,))) is None


def test_buttons_of_one_kind_are_told_apart_and_many_get_further_blocks() -> None:
    made = buttons([button(str(number), RunCommand((str(number),))) for number in range(30)])
    assert [len(block["elements"]) for block in made] == [25, 5]
    check_message(made, "x")
    values = [decode(each["action_id"], each["value"]) for block in made for each in block["elements"]]
    assert values == [RunCommand((str(number),)) for number in range(30)]


def test_a_fallback_is_escaped_and_mentions_no_user() -> None:
    assert fallback("<!channel> & <@U1> @here ana@example.com") == (
        "&lt;!channel&gt; &amp; &lt;@\u2060U1&gt; @\u2060here ana@example.com"
    )


@given(st.text(max_size=6_000))
def test_a_fallback_always_fits_and_never_ends_within_an_entity(text: str) -> None:
    made = fallback(text)
    assert 0 < len(made.encode()) <= 4_000
    assert "<" not in made
    assert "&" not in made.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


def test_a_fallback_is_within_the_limit_of_slack_for_letters_of_any_width() -> None:
    assert fallback("x" * 4_000) == "x" * 4_000
    assert fallback("x" * 4_001) == "x" * 3_997 + "…"
    assert fallback("ä" * 2_000) == "ä" * 2_000
    assert fallback("雨" * 2_000) == "雨" * 1_332 + "…"
    assert fallback("&" * 801) == "&amp;" * 799 + "…"


def test_many_small_lines_get_further_blocks() -> None:
    made = small(*("x" * 200 for _ in range(40)))
    check_message(made, "x")
    assert sum(block["elements"][0]["text"].count("\n") + 1 for block in made) == 40
