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
from bot.errors import ContentDeleted, CountersignError, QueueFull
from bot.i18n import _, gettext_lazy
from bot.rendering.text_safety import single_line

VIEW_FIRST = gettext_lazy(
    "Part of this call looks like a secret and is hidden. Open the whole call and approve it from there."
)
OUT_OF_DATE = gettext_lazy("This card is out of date. See the newer one.")
GONE = gettext_lazy("This approval no longer exists.")
BUTTON_EXPIRED = gettext_lazy("This button does nothing any more.")
PENDING_EXPIRED = gettext_lazy("This button is too old. Give the command again.")
FORM_EXPIRED = gettext_lazy("This form is no longer open. Nothing was saved; start again with the command.")
UNEXPECTED_ERROR = gettext_lazy("That did not work. Please try again.")
TOO_SLOW = gettext_lazy("That took too long. Please try again.")
NOT_STORED = gettext_lazy(
    "Your message is not stored yet: my database takes no writes. I try again by myself. If there is no answer in 15 "
    "minutes, send it again."
)
TOO_MANY_REQUESTS = gettext_lazy("Several of your requests are still running. Try again when one of them is done.")


class InteractionRejected(CountersignError):
    """An interaction was not carried out; the error's cause is the text for the user."""


def not_shared_text(name: str) -> str:
    """Return the text about a file that could not be shared."""
    return _("The file {name} could not be shared: it may be too large.", name=name)


def error_message(error: Exception) -> str:
    """Return the text for the user of a failed request: the reason if the user can resolve it."""
    match error:
        case QueueFull():
            return str(error.user_message)
        case InteractionRejected() | ContentDeleted():
            return str(error.cause)
        case TimeoutError():
            return str(TOO_SLOW)
        case _:
            return str(UNEXPECTED_ERROR)


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
            return str(OUT_OF_DATE)
        case ApprovalNotFound():
            return str(GONE)
        case ViewRequired():
            return str(VIEW_FIRST)
        case _:
            assert_never(result)
