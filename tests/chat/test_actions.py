"""The text that a button carries gives the same action back, and no other text gives one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    ConfirmApproval,
    Edit,
    FeedbackValue,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
    ViewPendingCall,
    decode,
    encode,
)
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction

ids = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=32)
numbers = st.integers(0, 999_999_999)
refs = st.builds(ApprovalRef, ids, numbers)
words = st.lists(st.text(min_size=1), min_size=1, max_size=5).map(tuple)
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(Approve, st.lists(refs, min_size=1, max_size=5).map(tuple)),
    st.builds(ApproveWithGrant, refs, st.sampled_from(["thread", "arguments", "8h", "always"])),
    st.builds(ConfirmApproval, refs),
    st.builds(Edit, refs),
    st.builds(OpenDenyForm, refs),
    st.builds(ViewCall, refs, numbers),
    st.builds(ViewPendingCall, ids),
    st.builds(CheckCallAction, ids, numbers),
    st.builds(RunAgainAction, ids, numbers),
    st.builds(StopTurnAction, ids),
    st.builds(SendFeedback, ids, st.sampled_from(FeedbackValue)),
    st.builds(RunCommand, words),
    st.builds(RunCommandInNewReply, words),
    st.builds(OpenConfirmation, words, st.text(), st.text()),
)


@given(actions)
def test_the_text_of_an_action_gives_the_action_back(action: Action) -> None:
    assert decode(encode(action)) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "approve",
        "approve:",
        "approve:a",
        "approve:a:",
        "approve::1",
        "approve:a:b",
        "approve:a:-1",
        "approve:a:+1",
        "approve:a:1.5",
        "approve:a:9999999999",
        "approve:a:\N{ARABIC-INDIC DIGIT ONE}",
        "approve:a:1:2",
        "approve:a:1,",
        "view:a:1",
        "rate:t1:perfect",
        "run:",
        "run:[]",
        "run:[1]",
        "run:[",
        "confirm:only two",
        "dance:1",
    ],
)
def test_a_text_that_no_button_carries_is_no_action(text: str) -> None:
    assert decode(text) is None


@given(st.text())
def test_decoding_never_raises(text: str) -> None:
    decode(text)


def test_deeply_nested_words_are_no_action() -> None:
    assert decode("run:" + "[" * 100_000) is None
