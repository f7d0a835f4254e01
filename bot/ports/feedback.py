"""The store of what users thought of answers."""

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
        """Keep what a person thinks now, in the place of what they thought before. Raises NotFound if the turn is not
        there any more.
        """

    async def for_turn(self, turn_id: str) -> Sequence[Feedback]:
        """Return the feedback on a turn's answer, oldest first."""
