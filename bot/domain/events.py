"""Events of a turn, as a closed set. Programs read these (`--json`); surfaces see views."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.elicitations import Elicitation
from bot.domain.turns import ToolStep
from bot.domain.views import BlockingTurn, ModelRetry


@dataclass(frozen=True, slots=True)
class TurnQueued:
    """The turn waits for `ahead` earlier turns of its conversation. `blocker` is the first of them."""

    turn_id: str
    ahead: int
    blocker: BlockingTurn | None


@dataclass(frozen=True, slots=True)
class ReplyUpdated:
    """The reply's text so far, from its beginning."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelPaused:
    """The model was busy or unreachable, and is asked again after `pause`. A partial reply starts over."""

    turn_id: str
    pause: ModelRetry


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call is under way."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """A running call reports progress."""

    turn_id: str
    step: ToolStep
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call has ended; `step.status` is the outcome."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A call waits for an approval."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ApprovalSettled:
    """An approval no longer waits; `step.status` and `step.approval` hold the reason."""

    turn_id: str
    step: ToolStep


@dataclass(frozen=True, slots=True)
class ElicitationRequested:
    """The server of a call waits for an answer from the user."""

    turn_id: str
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class ElicitationSettled:
    """The elicitation no longer waits; its record holds the reason."""

    turn_id: str
    step: ToolStep
    elicitation: Elicitation


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn is answered, or was stopped (`cancelled`)."""

    turn_id: str
    text: str
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """The turn ended without an answer."""

    turn_id: str
    reason: str


TurnEvent = (
    TurnQueued
    | ReplyUpdated
    | ModelPaused
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | ApprovalRequested
    | ApprovalSettled
    | ElicitationRequested
    | ElicitationSettled
    | TurnFinished
    | TurnFailed
)
