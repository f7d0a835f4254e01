"""What a person is told, alone, when the press of a button on a card has changed nothing.

Called by the listener after a decision. A decision that counts is told by the card itself.
"""

from __future__ import annotations

from typing import assert_never

from bot.domain.approvals import AlreadySettled, Counted, NoSuchApproval, NotAllowed, OutOfDate, Settled, Settlement
from bot.rendering.plain import one_line

OUT_OF_DATE = "This card is out of date. See the newer one."
GONE = "This approval no longer exists."
WORN_OUT = "This button does nothing any more."


def refused(settlement: Settlement) -> str:
    """One sentence; empty for a decision that counts, be it as one signature of several."""
    match settlement:
        case Settled() | Counted():
            return ""
        case AlreadySettled(how):
            return one_line(how, 300)
        case NotAllowed(reason):
            return one_line(reason, 300)
        case OutOfDate():
            return OUT_OF_DATE
        case NoSuchApproval():
            return GONE
        case _:
            assert_never(settlement)
