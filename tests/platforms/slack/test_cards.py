"""Approval cards in a thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.conversations import Author
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.slack.blocks import OutgoingMessage
from bot.platforms.slack.message_blocks import turn_messages
from tests.platforms import sample_views
from tests.platforms.sample_views import ISSUE, NOW, a_call, a_filing, a_reply, a_view, an_approval
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.payload_checks import check_message, labels

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


def test_a_destructive_call_is_confirmed() -> None:
    step = a_call(3, sample_views.DELETE, StepStatus.AWAITING, arguments={"issue": "OPS-17"}, approval=an_approval())
    assert "[Approve: Delete issue](danger)?" in outline(card(a_view(step, status=TurnStatus.WAITING)).blocks)


def test_a_decided_call_stays_on_a_card_with_others_that_are_open() -> None:
    view = a_view(
        a_filing(StepStatus.DENIED, **sample_views.SAM), a_filing(StepStatus.AWAITING, n=4), status=TurnStatus.WAITING
    )
    text = outline(card(view).blocks)
    assert text.startswith(f"*1 of 2 calls need an approval*\n---\n~{TITLE}~\nDenied by Sam")
    assert text.count("[Deny…]") == 1


def test_a_secret_that_the_model_gives_as_its_reason_is_masked() -> None:
    view = a_view(a_reply(0, "The password is hunter2."), a_filing(StepStatus.AWAITING), status=TurnStatus.WAITING)
    assert "hunter2" not in outline(card(view).blocks)


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
