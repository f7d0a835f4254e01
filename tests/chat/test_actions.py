"""Buttons: an encoded action decodes to the same action, and other texts decode to None."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import (
    MOST_PENDING,
    PENDING_SECONDS,
    Action,
    ActionEncoder,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    ConfirmApproval,
    Edit,
    FeedbackValue,
    InInbox,
    OpenConfirmation,
    OpenDenyForm,
    OpenForm,
    PendingActions,
    RunCommand,
    RunCommandInNewReply,
    RunPending,
    SendFeedback,
    ShowInbox,
    ViewCall,
    decode,
    encode,
)
from bot.domain.commands import Form
from bot.domain.conversations import ConversationKey
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction

HERE = ConversationKey("discord", "1", "2", "")
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
    st.builds(ShowInbox, numbers),
    st.builds(InInbox, st.builds(Approve, st.tuples(refs)) | st.builds(ConfirmApproval, refs), numbers),
    st.builds(CheckCallAction, ids, numbers),
    st.builds(RunAgainAction, ids, numbers),
    st.builds(StopTurnAction, ids),
    st.builds(SendFeedback, ids, st.sampled_from(FeedbackValue)),
    st.builds(RunPending, ids),
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


def test_a_token_is_valid_for_its_user_and_for_a_quarter_of_an_hour() -> None:
    now = [0.0]
    pending = PendingActions(100, lambda: now[0])
    token = pending.store(RunCommand(("mcp", "list")), HERE, "7").token
    assert pending.find(token, "7") == (RunCommand(("mcp", "list")), HERE)
    assert pending.find(token, "8") is None
    assert pending.find("", "7") is None
    now[0] = PENDING_SECONDS
    assert pending.find(token, "7") is None


def test_so_many_actions_are_pending_and_the_oldest_go_first() -> None:
    pending = PendingActions(100)
    first, second, *_ = [pending.store(RunCommand((f"c{n}",)), HERE, "7").token for n in range(MOST_PENDING + 1)]
    assert pending.find(first, "7") is None
    assert pending.find(second, "7") == (RunCommand(("c1",)), HERE)


def test_an_action_too_long_or_twice_in_a_message_becomes_a_token() -> None:
    pending = PendingActions(20)
    here, elsewhere = ActionEncoder(pending, "7", HERE), ActionEncoder(pending, "7", HERE, here=False)
    short, long = RunCommand(("mcp", "list")), RunCommand(("mcp", "list", "with blanks"))
    assert here.encode(short) == encode(short)
    for text, action in (
        (here.encode(short, [encode(short)]), short),
        (here.encode(long), long),
        (elsewhere.encode(short), short),
        (here.encode(OpenForm(Form("f", "F", ()))), OpenForm(Form("f", "F", ()))),
    ):
        token = decode(text)
        assert isinstance(token, RunPending)
        assert pending.find(token.token, "7") == (action, HERE)
