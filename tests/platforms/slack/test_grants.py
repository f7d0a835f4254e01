"""Allowing the next calls with the signature of one, in Slack."""

from __future__ import annotations

import dataclasses

import pytest

from bot.chat.actions import BUTTON_EXPIRED, Action, ApprovalRef, ApproveWithGrant, Edit
from bot.domain.approvals import ArgumentsScope, DecisionType, HoursScope, NotAllowed, PermanentScope, ThreadScope
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.platforms.slack.blocks import decode, encode
from tests.platforms.slack.connected_bot import connected_bot
from tests.platforms.slack.payload_checks import labels, parts
from tests.platforms.slack.test_action_codec import drawn
from tests.rendering.turns import NOTES, a_step, a_view, an_approval

KNOWN = dataclasses.replace(NOTES, server_id="s-1")
CARD = ApprovalRef("apr-12345678", 1)


def waiting(*, destructive: bool = False) -> TurnView:
    tool = dataclasses.replace(KNOWN, destructive=destructive)
    return a_view(a_step(StepStatus.AWAITING, approval=an_approval(), tool=tool), status=TurnStatus.WAITING)


@pytest.mark.parametrize("press", [ApproveWithGrant(CARD, "thread"), Edit(CARD)])
def test_a_press_is_read_as_it_was_written(press: Action) -> None:
    names = encode(press)
    assert names is not None
    assert decode(*names) == press


@pytest.mark.parametrize("value", ['["a",1]', '["a","1","thread"]', '["a",1,2]', "{}", "", "null"])
def test_what_nobody_has_written_is_no_grant(value: str) -> None:
    assert decode("cs.allow", value) is None


async def test_the_button_approves_and_allows_in_this_thread() -> None:
    async with connected_bot() as place:
        card = await drawn(place, waiting())
        await place.slack.press(place.priya, card, "Allow in this thread")
        await place.slack.until(lambda: place.engine.decisions)
        assert place.engine.granted == [GrantRequest(ThreadScope())]
        ((decision, member),) = place.engine.decisions
        assert (decision.approval_id, decision.revision, decision.type) == ("apr-12345678", 1, DecisionType.APPROVE)
        assert member.author.id == place.priya.id


async def test_what_else_can_be_allowed_stands_in_the_menu_of_the_card() -> None:
    async with connected_bot() as place:
        card = await drawn(place, waiting())
        (menu,) = [part for part in parts(list(card.blocks)) if part.get("type") == "overflow"]
        for label in ("Allow this very call", "Allow for 8 hours", "Always allow (admins)"):
            await place.slack.choose(place.priya, card, menu["action_id"], label)
        await place.slack.until(lambda: len(place.engine.granted) == 3)
        assert place.engine.granted == [
            GrantRequest(ArgumentsScope()),
            GrantRequest(HoursScope(8)),
            GrantRequest(PermanentScope()),
        ]


async def test_nothing_is_offered_for_what_may_destroy_something() -> None:
    async with connected_bot() as place:
        card = await drawn(place, waiting(destructive=True))
        assert not any("llow" in label for label in labels(card.blocks))
        assert not [part for part in parts(list(card.blocks)) if part.get("type") == "overflow"]


async def test_who_may_not_grant_hears_why_alone() -> None:
    async with connected_bot() as place:
        card = await drawn(place, waiting())
        place.engine.settlements = [NotAllowed("Only an admin can allow that.")]
        await place.slack.press(place.priya, card, "Allow in this thread")
        await place.slack.until(lambda: place.whispers(place.priya))
        assert place.whispers(place.priya) == ["Only an admin can allow that."]


async def test_a_word_that_offers_nothing_approves_nothing() -> None:
    async with connected_bot() as place:
        view = waiting()
        card = await drawn(place, view)
        (button,) = [part for part in parts(list(card.blocks)) if part.get("action_id") == "cs.allow"]
        as_of = card.written()
        for part in parts(as_of["blocks"]):
            if part.get("action_id") == "cs.allow":
                part["value"] = button["value"].replace("thread", "everything")
        await place.slack.press(place.priya, card, "cs.allow", as_of=as_of)
        await place.slack.until(lambda: place.whispers(place.priya))
        assert place.whispers(place.priya) == [BUTTON_EXPIRED]
        assert place.engine.decisions == []
