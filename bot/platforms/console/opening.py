"""What a conversation begins with, once the database is open.

Made by the application, read by the listeners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.domain.turns import TurnStatus
from bot.domain.views import TurnView


@dataclass(frozen=True, slots=True)
class Opening:
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


def exit_code(status: TurnStatus) -> int:
    """What a process that asked one question returns: 0 answered, 1 failed, 130 stopped."""
    match status:
        case TurnStatus.DONE:
            return 0
        case TurnStatus.CANCELLED:
            return 130
        case _:
            return 1
