"""Actions offered beside a turn, as data: for calls with an unknown outcome, and for messages that wait for another
turn.

Which buttons, keys or commands take an offer up is the platform's business; the engine has a method for each
(`EngineApi.check_outcome`, `again`, `stop`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from bot.domain.turns import StepStatus, ToolStep, TurnStatus
from bot.domain.views import BlockingTurn, TurnView


@dataclass(frozen=True, slots=True)
class CheckCallAction:
    """Ask the model to check if call `n` of a turn has run."""

    label: ClassVar[str] = "Check"
    turn_id: str
    n: int


@dataclass(frozen=True, slots=True)
class RunAgainAction:
    """Run call `n` of a turn once more, after a fresh signature."""

    label: ClassVar[str] = "Run again"
    turn_id: str
    n: int


@dataclass(frozen=True, slots=True)
class StopTurnAction:
    """Stop the turn that holds the conversation."""

    label: ClassVar[str] = "Stop what is ahead"
    turn_id: str


Offer = CheckCallAction | RunAgainAction | StopTurnAction


def available_actions(view: TurnView) -> tuple[Offer, ...]:
    """Everything to be offered beside this view."""
    of_calls = [offer for step in _calls(view) for offer in offers_of_call(view.turn.id, step)]
    return (*of_calls, *(offers_behind(view.blocker) if view.turn.status is TurnStatus.QUEUED else ()))


def offers_of_call(turn_id: str, step: ToolStep) -> tuple[CheckCallAction | RunAgainAction, ...]:
    """The ways out for a call of unknown outcome; none for any other."""
    if step.status is not StepStatus.UNKNOWN:
        return ()
    return CheckCallAction(turn_id, step.n), RunAgainAction(turn_id, step.n)


def offers_behind(blocker: BlockingTurn | None) -> tuple[StopTurnAction, ...]:
    """The way out for a message that waits behind people. A turn that is at work ends by itself."""
    return (StopTurnAction(blocker.turn_id),) if blocker is not None and _awaited(blocker) else ()


def call_to_check(views: Sequence[TurnView]) -> CheckCallAction | None:
    """Return the newest call of unknown outcome in a conversation. `views` are oldest first."""
    found = (
        CheckCallAction(view.turn.id, step.n) for view, step in _newest(views) if step.status is StepStatus.UNKNOWN
    )
    return next(found, None)


def call_to_run_again(views: Sequence[TurnView]) -> RunAgainAction | None:
    """Return the newest call of a conversation with unknown outcome, or whose second try was denied, expired or failed.
    `views` are oldest first.
    """
    found = (RunAgainAction(view.turn.id, step.n) for view, step in _newest(views) if _wants_another_try(view, step))
    return next(found, None)


def blocking_turn(views: Sequence[TurnView]) -> StopTurnAction | None:
    """Return the turn that blocks a conversation. `views` are oldest first."""
    return next((StopTurnAction(view.turn.id) for view in views if not view.turn.status.ended), None)


def waiting_text(view: TurnView) -> str:
    """Return the reason that a queued turn waits; empty for any other turn."""
    if view.turn.status is not TurnStatus.QUEUED or not view.ahead:
        return ""
    awaited = _awaited(view.blocker) if view.blocker is not None else ""
    if not awaited:
        return f"Waiting behind {_earlier(view.ahead)}"
    return f"Waiting behind {awaited}" + (f" and {_earlier(view.ahead - 1)}" if view.ahead > 1 else "")


def _awaited(blocker: BlockingTurn) -> str:
    """Return the user action that a turn waits for; empty for a running turn."""
    if blocker.awaits_signature:
        return "an approval"
    return "a question of a server" if blocker.awaits_answer else ""


def _wants_another_try(view: TurnView, step: ToolStep) -> bool:
    if step.status is StepStatus.UNKNOWN:
        return True
    return view.turn.question.again and step.status.ended and step.status is not StepStatus.DONE


def _newest(views: Sequence[TurnView]) -> Iterator[tuple[TurnView, ToolStep]]:
    return ((view, step) for view in reversed(views) for step in reversed(_calls(view)))


def _calls(view: TurnView) -> list[ToolStep]:
    return [step for step in view.steps if isinstance(step, ToolStep)]


def _earlier(count: int) -> str:
    return "1 earlier message" if count == 1 else f"{count} earlier messages"
