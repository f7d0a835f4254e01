"""Activity of one user: open approvals, recent turns, open elicitations, active threads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey
from bot.domain.turns import Turn


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A call that waits for a signature, as far as it takes to say whose: without what would be signed. `editors` are
    the principals of those who have changed that. `asked_at` is in epoch seconds.
    """

    approval_id: str
    conversation: ConversationKey
    asked_by: Author
    terms: ApprovalRequirements = NO_TERMS
    editors: frozenset[str] = frozenset()
    asked_at: float = 0.0


@dataclass(frozen=True, slots=True)
class PendingApprovalPosition:
    """A place in the list of calls that wait, newest first: behind the call asked at `at` with this approval id."""

    at: float
    approval_id: str

    def __str__(self) -> str:
        return f"{self.at!r}_{self.approval_id}"

    @classmethod
    def parse(cls, text: str) -> PendingApprovalPosition:
        """Return the position that `str` has written. Raises ValueError for any other text."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError("not a position")
        return cls(float(found[1]), found[2])


_POSITION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)_([A-Za-z0-9_-]{1,100})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PendingApprovalPage:
    """Some of the calls that wait. `behind` is where the next page begins, None if there is none."""

    calls: Sequence[PendingApproval]
    behind: PendingApprovalPosition | None = None


class UserActivity(Protocol):
    """Activity of one user now."""

    async def pending_approvals(
        self, reaches: Sequence[str], limit: int, behind: PendingApprovalPosition | None = None
    ) -> PendingApprovalPage:
        """Return up to `limit` calls that wait for a signature and have not expired, newest first, in conversations
        whose key begins with one of `reaches`. Calls that cannot be read are left out.
        """

    async def recent_turns(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """Return this principal's recent turns there, newest first. Unreadable turns are left out."""

    async def open_elicitations(self, person: str, reach: str, limit: int) -> Sequence[str]:
        """Return the ids of open elicitations of this principal there, newest first."""


class ActiveThreads(Protocol):
    """Threads in which users and the bot are active."""

    async def active_conversations(self, reach: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """The conversations whose key begins with `reach` and in which somebody has asked something in the last
        `seconds`, the latest first, at most `limit`.
        """
