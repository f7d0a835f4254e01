"""Store of users' feedback on answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.conversations import Author


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback on the answer of a turn. `person` is a principal, `at` epoch seconds."""

    turn_id: str
    good: bool
    person: str
    at: float


class FeedbackStore(Protocol):
    """Feedback on answers. Feedback is deleted with its turn and leaves no audit entry."""

    async def save(self, turn_id: str, good: bool, by: Author) -> None:
        """Save a user's feedback, replacing an earlier one. Raises NotFound if the turn was deleted."""

    async def for_turn(self, turn_id: str) -> Sequence[Feedback]:
        """Return the feedback on a turn's answer, oldest first."""
