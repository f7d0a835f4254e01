"""Lookups outside the engine: approvals and feedback by id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.domain.conversations import Author
from bot.domain.turns import ToolStep, Turn


@dataclass(frozen=True, slots=True)
class Lookups:
    """Optional lookups. `opinion` stores feedback on a turn's answer: the turn's id, True for good, and the author.
    `approval` finds the call of an approval (`TurnLog.get_approval`).
    """

    opinion: Callable[[str, bool, Author], Awaitable[None]] | None = None
    approval: Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]] | None = None

    async def find_approval(self, approval_id: str) -> ToolStep | None:
        """The call that an approval asks about, as it stands now; None where that is not known (any more)."""
        found = await self.approval(approval_id) if self.approval is not None else None
        return None if found is None else found[1]
