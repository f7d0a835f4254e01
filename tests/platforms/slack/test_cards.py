"""Approval cards in a thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import ApprovalRef, Approve, OpenDenyForm, ViewCall
from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import Author
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.slack.blocks import OutgoingMessage, decode
from bot.platforms.slack.message_blocks import turn_messages
from bot.rendering.timeline import RunAgainAction
from tests.platforms import sample_views
from tests.platforms.sample_views import ISSUE, NOW, a_call, a_filing, a_reply, a_view, an_approval
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.payload_checks import check_message, labels, parts, pressed

PEOPLE = frozenset({sample_views.PRIYA.id})
TITLE = "Create issue “Checkout 502s after the 14:05 deploy” (jira)"


def cards(view: TurnView) -> list[OutgoingMessage]:
    found = [slot for slot in turn_messages(view, NOW) if slot.name.startswith("card-")]
    for slot in found:
        check_message(slot.blocks, slot.text, PEOPLE)
    return found


def card(view: TurnView) -> OutgoingMessage:
    (found,) = cards(view)
    return found


def test_a_card_has_call_place_reason_asker_and_expiry() -> None:
    assert (
        outline(card(sample_views.ASKED).blocks)
        == f"""\
*{TITLE}?*
*Server* jira   *Tool* create_issue   *Risk* 🟠 Writes data
    project:     OPS
    summary:     Checkout 502s after the 14:05 deploy
    priority:    High
    label:       checkout
    description: {str(ISSUE["description"])[:200].rstrip()}… (399 characters)
_Reason given by the model: “Shall I file it? Priya asked for it.”_
Asked by Priya · expires <at 08:30 UTC> · `3a7f3c2e`
[Approve: Create issue](primary) [Allow in this thread] [Deny…] [Edit…] [View all] [⋯]
[Stop]"""
    )


def test_its_buttons_name_the_approval_and_its_revision() -> None:
    blocks = card(sample_views.ASKED).blocks
    ref = ApprovalRef("3a7f3c2e9b", 1)
    assert decode(*pressed(blocks, "Approve: Create issue")) == Approve((ref,))
    assert decode(*pressed(blocks, "Deny…")) == OpenDenyForm(ref)
    assert decode(*pressed(blocks, "View all")) == ViewCall(ref)


def test_the_end_is_a_time_on_the_readers_own_clock() -> None:
    (date,) = [part for part in parts(list(card(sample_views.ASKED).blocks)) if part.get("type") == "date"]
    assert date["timestamp"] == NOW + 1800


def test_a_card_that_is_not_out_yet_begins_to_run_off_now() -> None:
    view = a_view(a_filing(StepStatus.AWAITING, expires_at=None), status=TurnStatus.WAITING)
    (date,) = [part for part in parts(list(card(view).blocks)) if part.get("type") == "date"]
    assert date["timestamp"] == NOW + 1800


def test_a_card_names_its_approvers_and_approvals() -> None:
    terms = ApprovalRequirements((frozenset({"slack-group:S1"}),), four_eyes=True, quorum=2)
    view = a_view(a_filing(StepStatus.AWAITING, requirements=terms, approver_names=("Sam",)), status=TurnStatus.WAITING)
    assert "needs 2 of slack-group:S1, not Priya · 1 of 2 approved by Sam · expires" in outline(card(view).blocks)


def test_a_card_may_never_expire() -> None:
    view = a_view(a_filing(StepStatus.AWAITING, expires_in=None, expires_at=None), status=TurnStatus.WAITING)
    assert "does not expire" in outline(card(view).blocks)


def test_a_destructive_call_is_confirmed() -> None:
    step = a_call(3, sample_views.DELETE, StepStatus.AWAITING, arguments={"issue": "OPS-17"}, approval=an_approval())
    assert "[Approve: Delete issue](danger)?" in outline(card(a_view(step, status=TurnStatus.WAITING)).blocks)


def test_several_calls_share_a_card_and_are_decided_one_by_one() -> None:
    made = card(sample_views.ASKED_THREE)
    assert outline(made.blocks).startswith(f"*3 calls need an approval*\n---\n*{TITLE}?*")
    denials = [
        decode(part["action_id"], part["value"]) for part in parts(list(made.blocks)) if part.get("type") == "button"
    ]
    assert [denial for denial in denials if isinstance(denial, OpenDenyForm)] == [
        OpenDenyForm(ApprovalRef(f"{number}a7f3c2e9b", 1)) for number in (3, 4, 5)
    ]


def test_all_can_be_approved_at_once_where_none_may_destroy_anything() -> None:
    assert "Approve all 3" not in labels(card(sample_views.ASKED_THREE).blocks)
    two = a_view(a_filing(StepStatus.AWAITING), a_filing(StepStatus.AWAITING, n=4), status=TurnStatus.WAITING)
    refs = (ApprovalRef("3a7f3c2e9b", 1), ApprovalRef("4a7f3c2e9b", 1))
    assert decode(*pressed(card(two).blocks, "Approve all 2")) == Approve(refs)


def test_a_decided_call_stays_on_a_card_with_others_that_are_open() -> None:
    view = a_view(
        a_filing(StepStatus.DENIED, **sample_views.SAM), a_filing(StepStatus.AWAITING, n=4), status=TurnStatus.WAITING
    )
    text = outline(card(view).blocks)
    assert text.startswith(f"*1 of 2 calls need an approval*\n---\n~{TITLE}~\nDenied by Sam")
    assert text.count("[Deny…]") == 1


def test_many_calls_get_several_cards() -> None:
    view = a_view(*(a_filing(StepStatus.AWAITING, n=number) for number in range(3, 23)), status=TurnStatus.WAITING)
    assert [slot.name for slot in cards(view)] == ["card-3", "card-3-1", "card-3-2"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("approved", f"✅ *{TITLE}*\nApproved by Sam · <08:01 UTC> · running · `3a7f3c2e`"),
        ("done", f"✅ *{TITLE}*\nApproved by Sam · <08:01 UTC> · Created OPS-512 · `3a7f3c2e`"),
        (
            "failed",
            f"⚠️ *{TITLE}*\nApproved by Sam · <08:01 UTC> · but it failed: 403: missing scope write:issue · `3a7f3c2e`",
        ),
        (
            "unknown",
            f"⚠️ *{TITLE}*\n"  # noqa: ISC004 - one text
            "Approved by Sam · <08:01 UTC> · it may or may not have happened · The connection was lost. · `3a7f3c2e`",
        ),
        ("denied", f"~{TITLE}~\nDenied by Sam: Use the INC project. · <08:01 UTC> · `3a7f3c2e`"),
        ("expired", f"~{TITLE}~\nTimed out. Not run. · `3a7f3c2e`"),
        ("cancelled", f"~{TITLE}~\nCancelled. Not run. · `3a7f3c2e`"),
    ],
)
def test_the_same_message_becomes_its_outcome_without_buttons(name: str, lines: str) -> None:
    made = card(sample_views.SETTLED[name])
    assert made.name == card(sample_views.ASKED).name
    assert outline(made.blocks).partition("\n  . ◌ ")[0] == lines
    assert labels(made.blocks) == (["Stop"] if name in ("approved", "denied", "expired") else [])


def test_a_timed_out_call_can_be_requested_again_once_its_turn_is_over() -> None:
    view = a_view(a_filing(StepStatus.EXPIRED), a_reply(4, "It timed out."), status=TurnStatus.DONE)
    assert decode(*pressed(card(view).blocks, "Ask again")) == RunAgainAction(view.turn.id, 3)


def test_arguments_that_a_person_has_changed_are_marked() -> None:
    view = a_view(
        a_filing(StepStatus.AWAITING, revision=2, proposed={"project": "X"}, revised_by="Lee"),
        status=TurnStatus.WAITING,
    )
    made = card(view)
    shown = outline(made.blocks)
    assert "_Changed by Lee since the model asked for it.\n" in shown
    assert 'project: "X" → "OPS"' in shown
    assert decode(*pressed(made.blocks, "Approve: Create issue")) == Approve((ApprovalRef("3a7f3c2e9b", 2),))


def test_a_secret_that_the_model_gives_as_its_reason_is_masked() -> None:
    view = a_view(a_reply(0, "The password is hunter2."), a_filing(StepStatus.AWAITING), status=TurnStatus.WAITING)
    assert "hunter2" not in outline(card(view).blocks)


def test_a_hundred_arguments_do_not_push_the_buttons_away() -> None:
    step = replace(a_filing(StepStatus.AWAITING), call=replace(a_filing(StepStatus.AWAITING).call, arguments={
        f"argument_{number}": "x" * 300 for number in range(100)
    }))  # fmt: skip
    text = outline(card(a_view(step, status=TurnStatus.WAITING)).blocks)
    assert "more arguments: View all" in text
    assert text.endswith("[View all] [⋯]\n[Stop]")


def test_a_button_says_approve_for_any_title_of_a_tool() -> None:
    tool = replace(sample_views.CREATE, title="Deny")
    view = a_view(a_call(3, tool, StepStatus.AWAITING, approval=an_approval()), status=TurnStatus.WAITING)
    assert labels(card(view).blocks) == ["Approve: Deny", "Allow in this thread", "Deny…", "Edit…", "View all", "Stop"]


def test_an_asker_with_an_id_that_is_none_of_slacks_is_text() -> None:
    stranger = Author("slack", "<!channel>", "<!here>")
    view = a_view(a_filing(StepStatus.AWAITING, requested_for=stranger), status=TurnStatus.WAITING)
    assert "Asked by <!here>" in outline(card(view).blocks)


VALUES = st.one_of(st.text(max_size=400), st.integers(), st.lists(st.text(max_size=20), max_size=5), st.none())


@given(st.dictionaries(st.text(max_size=90), VALUES, max_size=40), st.text(max_size=200), st.text(max_size=600))
def test_a_card_of_any_call_is_within_the_limits_of_slack(arguments: dict[str, Any], title: str, said: str) -> None:
    tool = replace(sample_views.CREATE, title=title)
    steps = [
        a_call(number, tool, StepStatus.AWAITING, arguments=arguments, approval=an_approval(number))
        for number in range(3, 6)
    ]
    assert cards(a_view(a_reply(0, said), *steps, status=TurnStatus.WAITING))
    assert cards(a_view(a_reply(0, said), steps[0], status=TurnStatus.WAITING))
