"""Texts for one user alone: why a button, a form, a message or a command changed nothing.

A decision that counts is shown by the card itself.
"""

from __future__ import annotations

from typing import assert_never

from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    Decided,
    DecisionResult,
    MoreApprovalsNeeded,
    NotAllowed,
    StaleRevision,
    ViewRequired,
)
from bot.errors import CountersignError, QueueFull
from bot.rendering.text_safety import single_line

VIEW_FIRST = "Part of this call looks like a secret and is hidden. Open the whole call and approve it from there."
OUT_OF_DATE = "This card is out of date. See the newer one."
GONE = "This approval no longer exists."
BUTTON_EXPIRED = "This button does nothing any more."
PENDING_EXPIRED = "This button is too old. Give the command again."
FORM_EXPIRED = "This form is no longer open. Nothing was saved; start again with the command."
UNEXPECTED_ERROR = "That did not work. Please try again."
TOO_SLOW = "That took too long. Please try again."
NOT_SHARED = "The file {} could not be shared: it may be too large."
NOT_STORED = (
    "Your message is not stored yet: my database takes no writes. I try again by myself. If there is no answer in 15 "
    "minutes, send it again."
)
TOO_MANY_REQUESTS = "Several of your requests are still running. Try again when one of them is done."


class InteractionRejected(CountersignError):
    """An interaction was not carried out; the error's cause is the text for the user."""


def error_message(error: Exception) -> str:
    """Return the text for the user of a failed request: the reason if the user can resolve it."""
    match error:
        case QueueFull():
            return error.user_message
        case InteractionRejected():
            return error.cause
        case TimeoutError():
            return TOO_SLOW
        case _:
            return UNEXPECTED_ERROR


def rejection_message(result: DecisionResult) -> str:
    """Return the reason of a rejection; empty for a decision that counts, also as one of several."""
    match result:
        case Decided() | MoreApprovalsNeeded():
            return ""
        case AlreadyDecided(how):
            return single_line(how, 300)
        case NotAllowed(reason):
            return single_line(reason, 300)
        case StaleRevision():
            return OUT_OF_DATE
        case ApprovalNotFound():
            return GONE
        case ViewRequired():
            return VIEW_FIRST
        case _:
            assert_never(result)
