"""Actions of buttons, menus and forms, as values. Each platform encodes them in its own way.

A button holds names and numbers only. The user's rights are checked at the press, against stored data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bot.rendering.available_actions import CheckCallAction, RunAgainAction, StopTurnAction


@dataclass(frozen=True, slots=True)
class ApprovalRef:
    """One revision of one approval."""

    approval_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Approve:
    """Sign these calls, exactly as they were drawn."""

    cards: tuple[ApprovalRef, ...]


@dataclass(frozen=True, slots=True)
class ApproveWithGrant:
    """Approve this call and grant later ones; `offer` is the `word` of a `GrantOption` (`rendering.grant_options`)."""

    card: ApprovalRef
    offer: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Open the form for editing a call's arguments before its approval."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class OpenDenyForm:
    """Open the window that asks for a reason before a call is denied."""

    card: ApprovalRef


@dataclass(frozen=True, slots=True)
class ViewCall:
    """Show a call with all of its arguments, from this page on (the first is 1)."""

    card: ApprovalRef
    page: int = 1


@dataclass(frozen=True, slots=True)
class ViewPendingCall:
    """Show a call that waits, as it stands when this is pressed, with all of its arguments."""

    approval_id: str


class FeedbackValue(StrEnum):
    """Feedback on an answer."""

    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class SendFeedback:
    """An opinion on the answer of a turn."""

    turn_id: str
    opinion: FeedbackValue


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Say a command: the words with its name first."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCommandInNewReply:
    """Run a command from a card, which stays in place. The reply is shown beside it to the user who pressed only."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenConfirmation:
    """Open the window in which `text` has to be typed before the command runs. `label` is the label of its button."""

    words: tuple[str, ...]
    text: str
    label: str


Action = (
    Approve
    | ApproveWithGrant
    | Edit
    | OpenDenyForm
    | ViewCall
    | ViewPendingCall
    | CheckCallAction
    | RunAgainAction
    | StopTurnAction
    | SendFeedback
    | RunCommand
    | RunCommandInNewReply
    | OpenConfirmation
)
