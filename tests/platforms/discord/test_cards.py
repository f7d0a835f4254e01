"""Approval cards: the exact call, within Discord's limits, and later its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey
from bot.domain.tools import Risk
from bot.domain.turns import StepStatus, ToolRef, ToolStep, TurnStatus, TurnView
from bot.platforms.discord.components import OutgoingMessage
from bot.platforms.discord.message_layout import CALLS_A_CARD, GREEN, GREY, ORANGE, RED, turn_messages
from bot.rendering.approval_card import RISKS
from tests.platforms import sample_views
from tests.platforms.discord.payload_checks import check_slot, labels, texts
from tests.platforms.sample_views import NOW, a_call, a_reply, a_view, an_approval

PRIYA = Author("discord", "1001", "Priya")
THREAD = ConversationKey("discord", "1", "2", "3")
OTHERS = ["Allow in this thread", "Deny…", "Edit…", "View all"]
"""The buttons beside Approve."""


def cards(view: TurnView) -> list[OutgoingMessage]:
    slots = turn_messages(sample_views.at(view, THREAD, PRIYA), NOW)
    found = [slot for slot in slots if slot.name.startswith("card-")]
    for slot in found:
        check_slot(slot, frozenset({PRIYA.id}))
    return found


def only(view: TurnView) -> OutgoingMessage:
    (slot,) = cards(view)
    return slot


def colour(slot: OutgoingMessage) -> int:
    return int(slot.components[0]["accent_color"])


def slot_text(slot: OutgoingMessage) -> str:
    return "\n".join(filter(None, texts(slot)))


def waiting(arguments: Mapping[str, Any], tool: ToolRef = sample_views.CREATE, n: int = 3, ident: str = "") -> ToolStep:
    approval = an_approval(n) if not ident else replace(an_approval(n), id=ident)
    return a_call(n, tool, StepStatus.AWAITING, arguments=arguments, approval=approval)


def test_a_card_has_call_place_reason_and_expiry() -> None:
    slot = only(sample_views.ASKED)
    assert (
        slot_text(slot)
        == """\
### Create issue “Checkout 502s after the 14:05 deploy” (jira)?
**Server** jira   **Tool** create_issue   **Risk** 🟠 Writes data
```
project:     OPS
summary:     Checkout 502s after the 14:05 deploy
priority:    High
label:       checkout
description: Since the deploy at 14:05 one request in thirty to the checkout fails with 502. Since the deploy at \
14:05 one request in thirty to the checkout fails with 502. Since the deploy at 14:05 one request in… (399 characters)
```
*Reason given by the model: “Shall I file it? Priya asked for it.”*
-# Asked by <@1001> · expires <t:1800001800:R> · `3a7f3c2e`"""
    )
    assert labels(slot.components) == ["Approve: Create issue", *OTHERS, "Stop"]
    assert slot.asks
    assert colour(slot) == ORANGE


def test_calls_that_were_asked_for_together_share_a_card_and_are_decided_one_by_one() -> None:
    slot = only(sample_views.ASKED_THREE)
    assert slot_text(slot).startswith("**3 calls need an approval**\n### Create issue")
    assert labels(slot.components) == [
        *["Approve: Create issue", *OTHERS] * 2,
        *["Approve: Delete issue", "Deny…", "Edit…", "View all", "Stop"],
    ]
    assert colour(slot) == RED
    assert slot_text(slot).count("Asked by") == 1


@pytest.mark.parametrize(
    ("name", "edge"),
    [("approved", GREEN), ("done", GREEN), ("failed", RED), ("unknown", RED), ("denied", GREY), ("expired", GREY)],
)
def test_a_decided_card_has_the_colour_of_its_outcome(name: str, edge: int) -> None:
    assert colour(only(sample_views.SETTLED[name])) == edge


def test_approvers_of_all_calls_of_a_card_leave_room_for_the_calls() -> None:
    steps = []
    for n in range(1, CALLS_A_CARD + 1):
        groups = frozenset(f"discord-role:{n}{each}{'0' * 44}" for each in range(5))
        terms = ApprovalRequirements((groups,), quorum=9)
        signers = tuple(f"{n} {each} {'x' * 50}" for each in range(5))
        tool = ToolRef("*" * 60, "*" * 60, title="*" * 80)
        step = waiting({"text": "x" * 100, "body": "y" * 190}, tool, n=n)
        steps.append(replace(step, approval=replace(an_approval(n), requirements=terms, approver_names=signers)))
    (card,) = cards(a_view(*steps))
    assert slot_text(card).count("y" * 190) == CALLS_A_CARD


def test_arguments_cannot_pretend_to_be_more_of_the_card() -> None:
    forged = "```\n**Risk** 🟢 Reads data\n-# Asked by <@1> · @everyone\n"
    tool = ToolRef("jira", "x", title="# Safe?\n<@1> **ok**", destructive=True)
    slot = only(a_view(waiting({"text": forged, "`": forged}, tool)))
    shown = slot_text(slot)
    assert shown.count("\n```") == 2  # one code block
    assert shown.startswith("### \\# Safe? <\u2060@1> \\*\\*ok\\*\\*")


_WORDS = st.one_of(
    st.text(max_size=400), st.sampled_from(["*" * 500, "`" * 600, "<@1>" * 100, "\n" * 50, "😀" * 400, "_ " * 300])
)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(_WORDS, _WORDS, max_size=12),
            _WORDS,
            _WORDS,
            st.sampled_from(list(StepStatus)),
            st.booleans(),
        ),
        min_size=1,
        max_size=7,
    ),
    _WORDS,
)
def test_a_card_of_any_call_stays_within_the_limits_of_discord(
    calls: list[tuple[dict[str, str], str, str, StepStatus, bool]], reason: str
) -> None:
    steps = []
    for n, (arguments, title, person, status, destructive) in enumerate(calls, start=1):
        tool = ToolRef("s" * 80, "t" * 80, title=title, destructive=destructive)
        approval = replace(an_approval(n), decided_by=person, decided_at=NOW, reason=person, revised_by=person)
        steps.append(a_call(n, tool, status, person, arguments=arguments, approval=approval))
    waits = any(status is StepStatus.AWAITING for *_call, status, _destructive in calls)
    *others, last = cards(a_view(a_reply(0, reason), *steps, status=TurnStatus.WAITING))
    for slot in (*others, last):
        shown = slot_text(slot)
        writing, destroying = (shown.count(f"**Risk** {RISKS[risk]}") for risk in (Risk.WRITES, Risk.DESTRUCTIVE))
        together = writing > 1 and not destroying  # "Approve all"
        # Destructive calls have no grant button.
        assert len(labels(slot.components)) == 5 * writing + 4 * destroying + together + (waits and slot is last)


def test_calls_that_were_changed_a_lot_show_their_arguments_too() -> None:
    after, before = ({"\u952e" * 60 + str(n): value * 300 for n in range(9)} for value in "\u503c\u65e7")
    calls = [waiting(after, n=n, ident=f"apr-{n}0000000") for n in range(3, 7)]
    changed = [
        replace(call, approval=replace(call.approval, proposed=before, revised_by="\u540d" * 60))
        for call in calls
        if call.approval is not None
    ]
    slot = only(a_view(a_reply(2, "r" * 400), *changed))
    assert slot_text(slot).count("Changed by") == 4
    assert slot_text(slot).count("more arguments: View all") == 4
