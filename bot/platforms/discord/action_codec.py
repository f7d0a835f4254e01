"""Codec between an `Action` and the `custom_id` of a Discord button, which holds 100 characters.

Fields are separated by colons and contain none: ids of turns and approvals are letters and digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.chat.actions import (
    Action,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    FeedbackValue,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    SendFeedback,
    ViewCall,
    ViewPendingCall,
)
from bot.rendering.available_actions import CheckCallAction, RunAgainAction, StopTurnAction

PREFIX = "cs"
LONGEST = 100
WRITTEN = rf"{PREFIX}:(?P<kind>[a-z]+):(?P<rest>.*)"
"""Pattern of the bot's ids."""
MENU = f"{PREFIX}:menu"
"""Prefix of a menu's id; the part after the colon makes it unique."""
_TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class ResumePending:
    """Run the pending action of a token (`pending_actions`), for actions that exceed the limit of a button."""

    ticket: str

    def __str__(self) -> str:
        return f"{PREFIX}:{_TICKET}:{self.ticket}"


def chosen(custom_id: str, values: Sequence[str]) -> Action | ResumePending | None:
    """Return the action of a button or of a selected menu entry, or None if it is not one of the bot's. Menu entries
    are encoded like buttons.
    """
    return decode(values[0]) if values and custom_id.startswith(f"{MENU}:") else decode(custom_id)


def encode(press: Action | ResumePending) -> str | None:
    """Return a button's `custom_id`, or None if it exceeds Discord's limit or the action has no encoding."""
    text = str(press) if isinstance(press, ResumePending) else _written(press)
    return text if text is not None and len(text) <= LONGEST else None


def _written(press: Action) -> str | None:  # noqa: C901, PLR0912 - one case for each kind of button
    match press:
        case Approve((card,)):
            text = f"approve:{_card(card)}"
        case ApproveWithGrant(card, offer):
            text = f"allow:{_card(card)}:{offer}"
        case Edit(card):
            text = f"edit:{_card(card)}"
        case OpenDenyForm(card):
            text = f"deny:{_card(card)}"
        case ViewCall(card, page):
            text = f"view:{_card(card)}:{page}"
        case ViewPendingCall(approval_id):
            text = f"review:{approval_id}"
        case CheckCallAction(turn_id, n):
            text = f"check:{turn_id}:{n}"
        case RunAgainAction(turn_id, n):
            text = f"again:{turn_id}:{n}"
        case StopTurnAction(turn_id):
            text = f"stop:{turn_id}"
        case SendFeedback(turn_id, opinion):
            text = f"rate:{turn_id}:{opinion}"
        case RunCommand(words) if all(word.split() == [word] for word in words):
            text = f"run:{' '.join(words)}"
        case RunCommandInNewReply(words) if all(word.split() == [word] for word in words):
            text = f"beside:{' '.join(words)}"
        case _:
            return None
    return f"{PREFIX}:{text}"


def decode(custom_id: str) -> Action | ResumePending | None:
    """Return the action of a button, or None if it is not one of the bot's."""
    found = re.fullmatch(WRITTEN, custom_id)
    if found is None:
        return None
    if found["kind"] == _TICKET:
        return ResumePending(found["rest"])
    try:
        return _press(found["kind"], found["rest"])
    except ValueError:
        return None


def _press(kind: str, rest: str) -> Action | None:  # noqa: C901, PLR0911, PLR0912 - one case for each kind of button
    match kind, rest.split(":"):
        case "approve", [approval_id, revision]:
            return Approve((ApprovalRef(approval_id, _number(revision)),))
        case "allow", [approval_id, revision, offer]:
            return ApproveWithGrant(ApprovalRef(approval_id, _number(revision)), offer)
        case "edit", [approval_id, revision]:
            return Edit(ApprovalRef(approval_id, _number(revision)))
        case "deny", [approval_id, revision]:
            return OpenDenyForm(ApprovalRef(approval_id, _number(revision)))
        case "view", [approval_id, revision, page]:
            return ViewCall(ApprovalRef(approval_id, _number(revision)), _number(page))
        case "review", [approval_id]:
            return ViewPendingCall(approval_id)
        case "check", [turn_id, n]:
            return CheckCallAction(turn_id, _number(n))
        case "again", [turn_id, n]:
            return RunAgainAction(turn_id, _number(n))
        case "stop", [turn_id]:
            return StopTurnAction(turn_id)
        case "rate", [turn_id, opinion]:
            return SendFeedback(turn_id, FeedbackValue(opinion))
        case "run", _ if rest:
            return RunCommand(tuple(rest.split(" ")))
        case "beside", _ if rest:
            return RunCommandInNewReply(tuple(rest.split(" ")))
        case _:
            return None


def _card(card: ApprovalRef) -> str:
    return f"{card.approval_id}:{card.revision}"


def _number(text: str) -> int:
    """Parse a number as encoded by this module. Raises ValueError for other digits, signs and numbers too large for the
    database.
    """
    if re.fullmatch(r"[0-9]{1,9}", text) is None:
        raise ValueError(text)
    return int(text)
