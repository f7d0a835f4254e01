"""Content above Slack's limits is cut, with the number of missing characters. Slack accepts each result.

For texts in several messages see `test_turns`, `test_replies` and `test_acceptance`.
"""

from __future__ import annotations

import re

import pytest

from bot.chat.actions import ApprovalRef, OpenConfirmation, OpenDenyForm, RunCommand
from bot.chat.approval_inbox import PendingCall
from bot.chat.command_runner import reply_message
from bot.chat.home_message import SHOWN, Home
from bot.domain.commands import Field, FieldKind, Form, Reply, ReplyAction, Table
from bot.domain.turns import StepStatus, TurnStatus
from bot.platforms.slack.blocks import (
    BUTTON_TEXT,
    BUTTON_VALUE,
    PLAIN_TEXT,
    TABLE_ROWS,
    TASK_TEXT,
    button,
    confirmation,
    header,
    section,
    shorten,
    small,
)
from bot.platforms.slack.home import home_view
from bot.platforms.slack.message_blocks import DETAIL_LIMIT, command_reply, turn_messages
from bot.platforms.slack.modals import call_modal, confirm_modal, deny_modal, form_to_modal, note_modal
from bot.platforms.slack.sending import streams
from tests.platforms.sample_views import DELETE, NOW, a_call, a_filing, a_view, an_approval
from tests.platforms.slack.payload_checks import check_message, check_view, labels, parts

LONG = "word " * 2_000


def missing_count(text: str) -> int:
    """Return the number of missing characters in a cut text."""
    (found,) = re.findall(r"([\d,]+) more characters", text)
    return int(found.replace(",", ""))


def test_a_paragraph_says_how_much_of_it_is_missing() -> None:
    block = section(LONG)
    check_message([block], "x")
    shown = block["text"]["text"]
    assert len(shown) <= PLAIN_TEXT
    assert missing_count(shown) + len(shown.partition("…")[0]) == pytest.approx(len(LONG), abs=3)


@pytest.mark.parametrize("length", [2_999, 3_000, 3_001])
def test_a_paragraph_at_the_limit_is_cut_no_sooner_than_it_must_be(length: int) -> None:
    shown = shorten("x" * length, PLAIN_TEXT)
    assert (shown == "x" * length) is (length <= PLAIN_TEXT)
    assert len(shown) <= PLAIN_TEXT


def test_a_heading_and_a_small_line_of_any_length_fit() -> None:
    check_message([header(LONG), *small(LONG)], "x")


def test_a_button_of_any_length_fits_and_one_that_would_carry_too_much_is_left_out() -> None:
    made = button(LONG, RunCommand(("mcp", "list")))
    assert made is not None
    assert len(made["text"]["text"]) == BUTTON_TEXT
    assert button("Show", RunCommand(("mcp", "show", "x" * BUTTON_VALUE))) is None


def test_a_confirmation_of_any_call_fits() -> None:
    question = confirmation(LONG, LONG, LONG)
    made = button("Delete", RunCommand(("mcp", "remove")), "danger", question)
    assert made is not None
    check_message([{"type": "actions", "elements": [made]}], "x")


def test_an_endless_card_fits_and_counts_its_omissions() -> None:
    step = a_call(
        3,
        DELETE,
        StepStatus.AWAITING,
        arguments={f"{LONG}{number}": LONG for number in range(100)},
        approval=an_approval(3),
    )
    view = a_view(step, status=TurnStatus.WAITING)
    (slot, *_) = [message for message in turn_messages(view, NOW) if message.asks]
    check_message(slot.blocks, slot.text, frozenset({"U0PRIYA"}))
    assert re.search(r"\d+ more arguments: View all", str(slot.blocks))
    assert "View all" in labels(slot.blocks)


def test_the_modals_around_a_call_take_any_text() -> None:
    step = a_call(
        3, DELETE, StepStatus.AWAITING, arguments={"text": LONG * 5, "x" * 5_000: "y"}, approval=an_approval(3)
    )
    for page in range(1, 12):
        check_view(call_modal(step, page))
    check_view(deny_modal(OpenDenyForm(ApprovalRef("a" * 200, 1)), "{}"))
    check_view(confirm_modal(OpenConfirmation(("mcp", "remove", "jira"), "jira" * 40, LONG), "{}"))
    note = note_modal(LONG, LONG)
    check_view(note)
    assert missing_count(note["blocks"][0]["text"]["text"]) > len(LONG) - PLAIN_TEXT


def test_a_form_takes_any_label_hint_value_error_and_list_of_choices() -> None:
    fields = tuple(
        Field(
            f"f{number}",
            LONG,
            kind,
            hint=LONG,
            value=LONG,
            error=LONG,
            choices=tuple(f"{LONG}{each}" for each in range(300)) if kind is FieldKind.CHOICE else (),
            longest=100_000,
        )
        for number, kind in enumerate(FieldKind)
    )
    check_view(form_to_modal(Form("x:1", LONG, fields, submit=LONG, intro=LONG), "{}"))


def test_a_home_with_hundreds_of_everything_fits_and_counts_the_rest() -> None:
    step = a_filing(StepStatus.AWAITING)
    turn = a_view(step, status=TurnStatus.WAITING).turn
    home = Home(NOW, waiting=[PendingCall(turn, step)] * 300, asked=[turn] * 300, servers=[], more_waiting=7)
    view = home_view(home)
    check_view(view, channels=frozenset({turn.conversation.channel}))
    assert f"and {307 - SHOWN} more" in str(view)
    assert f"and {300 - SHOWN} more" in str(view)


def test_an_endless_reply_counts_its_omissions() -> None:
    reply = Reply(
        LONG,
        Table(("a", "b"), tuple((LONG, str(number)) for number in range(300))),
        details=((LONG, LONG), ("short", "x" * (DETAIL_LIMIT + 7))),
        actions=tuple(ReplyAction(LONG, ("mcp", str(number))) for number in range(60)),
    )
    sheet = command_reply(reply_message(reply))
    check_message(sheet.blocks, sheet.text)
    assert missing_count(str(sheet.blocks)) > 10_000


def test_a_detail_that_is_too_long_is_counted() -> None:
    sheet = command_reply(reply_message(Reply("Here.", details=(("text", "x" * (DETAIL_LIMIT + 7)),))))
    assert missing_count(str(sheet.blocks)) == 7


def test_a_task_of_a_stream_takes_any_title_and_result() -> None:
    step = a_call(1, DELETE, StepStatus.DONE, LONG, arguments={"text": LONG})
    (stream,) = streams(a_view(step, activity=LONG))
    (task,) = stream.tasks
    assert max(len(each) for each in (task.title, task.details, task.output)) <= TASK_TEXT


def test_a_table_too_large_for_slack_keeps_every_row_as_text() -> None:
    rows = tuple((f"row {number}", "x") for number in range(TABLE_ROWS + 20))
    sheet = command_reply(reply_message(Reply("All of them:", Table(("a", "b"), rows))))
    check_message(sheet.blocks, sheet.text)
    assert not [part for part in parts(sheet.blocks) if part.get("type") == "table"]
    assert all(f"row {number}" in str(sheet.blocks) for number in range(len(rows)))
