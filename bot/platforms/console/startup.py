"""What a conversation begins with, once the database is open, and how to wait for it.

Made by the application, read by the listeners.
"""

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
    """How many turns there are in all; 0 means as many as `earlier` has."""

    @property
    def count(self) -> int:
        """How many earlier turns the conversation has."""
        return max(self.turns, len(self.earlier))

    @property
    def ended(self) -> tuple[TurnView, ...]:
        """The turns to remind the person of."""
        return tuple(view for view in self.earlier if view.turn.status.ended)

    @property
    def open(self) -> tuple[TurnView, ...]:
        """The turns that still run or wait for an approval."""
        return tuple(view for view in self.earlier if not view.turn.status.ended)


async def await_ready(promised: Awaitable[T]) -> T:
    """What the application has promised, once it is there. Whoever stops waiting leaves the promise alone. Raises
    CountersignError also where it was broken without a word.
    """
    future = asyncio.ensure_future(promised)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.cancelled():
            raise
    raise CountersignError("The program could not be started.", "Look into its log.")


def exit_code(view: TurnView) -> int:
    """What a process that asked one question returns: 0 answered, 1 failed, 130 stopped. A call run by hand has to
    have gone well.
    """
    match view.turn.status:
        case TurnStatus.DONE if view.turn.question.call is not None:
            return 0 if all(isinstance(step, ToolStep) and step.status is StepStatus.DONE for step in view.steps) else 1
        case TurnStatus.DONE:
            return 0
        case TurnStatus.CANCELLED:
            return 130
        case _:
            return 1
