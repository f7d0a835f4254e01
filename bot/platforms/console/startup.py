"""Initial state of a conversation after the database was opened, and the wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bot.domain.turns import StepStatus, ToolStep, TurnStatus
from bot.domain.views import TurnView
from bot.errors import CountersignError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartState:
    """The conversation to talk in, and its earlier turns, oldest first (the last few are enough)."""

    conversation: str
    earlier: Sequence[TurnView] = ()
    turns: int = 0
    """Number of all turns; 0 for the length of `earlier`."""

    @property
    def count(self) -> int:
        """Number of earlier turns of the conversation."""
        return max(self.turns, len(self.earlier))

    @property
    def ended(self) -> tuple[TurnView, ...]:
        """Last ended turns, for the reminder."""
        return tuple(view for view in self.earlier if view.turn.status.ended)

    @property
    def open(self) -> tuple[TurnView, ...]:
        """Turns that run or wait for an approval."""
        return tuple(view for view in self.earlier if not view.turn.status.ended)


async def await_ready(promised: Awaitable[T]) -> T:
    """Wait for a promised value. A cancelled wait does not cancel the promise. Raises CountersignError if the promise
    is cancelled or fails.
    """
    future = asyncio.ensure_future(promised)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.cancelled():
            raise
    raise CountersignError("The program could not be started.", "Look into its log.")


def exit_code(view: TurnView) -> int:
    """Return the exit code for one turn: 0 answered, 1 failed, 130 stopped. A manual call must have succeeded for 0."""
    match view.turn.status:
        case TurnStatus.DONE if view.turn.question.call is not None:
            return 0 if all(isinstance(step, ToolStep) and step.status is StepStatus.DONE for step in view.steps) else 1
        case TurnStatus.DONE:
            return 0
        case TurnStatus.CANCELLED:
            return 130
        case _:
            return 1
