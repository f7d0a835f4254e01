"""Ephemeral replies to a rejected click."""

from __future__ import annotations

import pytest

from bot.chat.actions import GONE, OUT_OF_DATE, rejection_message
from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    Decided,
    DecisionResult,
    DecisionType,
    MoreApprovalsNeeded,
    NotAllowed,
    StaleRevision,
)


@pytest.mark.parametrize(
    ("settlement", "told"),
    [
        (Decided(DecisionType.APPROVE), ""),
        (Decided(DecisionType.DENY), ""),
        (MoreApprovalsNeeded(1), ""),
        (AlreadyDecided("Ben has approved\nit already."), "Ben has approved it already."),
        (NotAllowed("You may not approve this."), "You may not approve this."),
        (StaleRevision(), OUT_OF_DATE),
        (ApprovalNotFound(), GONE),
    ],
)
def test_only_a_press_that_changed_nothing_is_answered(settlement: DecisionResult, told: str) -> None:
    assert rejection_message(settlement) == told
