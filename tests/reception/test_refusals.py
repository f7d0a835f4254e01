"""What a person is told, alone, after pressing a button."""

from __future__ import annotations

import pytest

from bot.domain.approvals import (
    AlreadySettled,
    Counted,
    NoSuchApproval,
    NotAllowed,
    OutOfDate,
    Settled,
    Settlement,
    Verdict,
)
from bot.reception.refusals import GONE, OUT_OF_DATE, refused


@pytest.mark.parametrize(
    ("settlement", "told"),
    [
        (Settled(Verdict.APPROVE), ""),
        (Settled(Verdict.DENY), ""),
        (Counted(1), ""),
        (AlreadySettled("Ben has approved\nit already."), "Ben has approved it already."),
        (NotAllowed("You may not sign this."), "You may not sign this."),
        (OutOfDate(), OUT_OF_DATE),
        (NoSuchApproval(), GONE),
    ],
)
def test_only_a_press_that_changed_nothing_is_answered(settlement: Settlement, told: str) -> None:
    assert refused(settlement) == told
