"""Grant options of an approval card."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.domain.approvals import (
    ApprovalRequirements,
    ArgumentsScope,
    HoursScope,
    PermanentScope,
    Scope,
    ThreadScope,
    parse_scope,
    scope_name,
)
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, ToolStep
from bot.rendering.approval_card import OFFERS, approval_card, grant_offers, parse_grant_option
from tests.rendering.turns import NOTES, a_step, an_approval

KNOWN = dataclasses.replace(NOTES, server_id="s-1")


def waiting(**changes: Any) -> ToolStep:
    return a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN, **changes)


def test_the_thread_is_offered_first() -> None:
    first, *_ = grant_offers(waiting())
    assert (first.label, first.permission) == ("Allow in this thread", GrantRequest(ThreadScope()))


@pytest.mark.parametrize(
    "step",
    [
        dataclasses.replace(waiting(), status=StepStatus.READY),
        dataclasses.replace(waiting(), approval=None),
        dataclasses.replace(waiting(), tool=None),
        dataclasses.replace(waiting(), tool=dataclasses.replace(KNOWN, destructive=True)),
        dataclasses.replace(waiting(), approval=an_approval(requirements=ApprovalRequirements(quorum=2))),
    ],
    ids=["settled", "needs no signature", "made up", "destructive", "two signatures"],
)
def test_nothing_is_offered_that_would_be_refused(step: ToolStep) -> None:
    assert grant_offers(step) == ()


def test_a_button_carries_a_word_and_nothing_else() -> None:
    assert [parse_grant_option(offer.word) for offer in OFFERS] == [offer.permission for offer in OFFERS]
    assert len({offer.word for offer in OFFERS}) == len(OFFERS)
    assert parse_grant_option("everything") is parse_grant_option("") is None


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (ThreadScope(), "allowed in this thread until it goes unused for an hour"),
        (ArgumentsScope(), "this very call allowed in this thread until it goes unused for an hour"),
        (HoursScope(8), "allowed for 8 hours"),
        (HoursScope(1), "allowed for 1 hour"),
        (PermanentScope(), "always allowed"),
    ],
)
def test_a_settled_card_names_the_grant_and_the_way_to_revoke_it(scope: Scope, said: str) -> None:
    made = approval_card(a_step(StepStatus.DONE, approval=an_approval(decided_by="Ana", granted=scope)))
    assert made is not None
    assert made.outcome == f"Approved by Ana · {said} · /mcp grants list"


def test_a_scope_is_read_back_by_its_word() -> None:
    for scope in (ThreadScope(), ArgumentsScope(), HoursScope(8), PermanentScope()):
        assert parse_scope(scope_name(scope), 8 * 3600.0) == scope
    assert parse_scope("for life", None) is None


def test_no_grant_is_offered_for_everyone_or_for_a_destructive_call() -> None:
    assert not any(offer.permission.everyone or offer.permission.destructive for offer in OFFERS)
