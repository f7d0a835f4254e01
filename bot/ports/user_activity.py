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
    """Call that waits for an approval, without its arguments: the fields that determine its approvers. `editors` are
    the principals that have edited the arguments. `asked_at` is in epoch seconds.
    """

    approval_id: str
    conversation: ConversationKey
    asked_by: Author
    terms: ApprovalRequirements = NO_TERMS
    editors: frozenset[str] = frozenset()
    asked_at: float = 0.0


@dataclass(frozen=True, slots=True)
class PendingApprovalPosition:
    """Position in the list of waiting calls, newest first: after the call requested at `at` with this approval id."""

    at: float
    approval_id: str

    def __str__(self) -> str:
        return f"{self.at!r}_{self.approval_id}"

    @classmethod
    def parse(cls, text: str) -> PendingApprovalPosition:
        """Parse the text form of a position. Raises ValueError for any other text."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError("not a position")
        return cls(float(found[1]), found[2])


_POSITION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)_([A-Za-z0-9_-]{1,100})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PendingApprovalPage:
    """Page of waiting calls. `behind` is the start of the next page, None on the last one."""

    calls: Sequence[PendingApproval]
    behind: PendingApprovalPosition | None = None


class UserActivity(Protocol):
    """Activity of one user now."""

    async def pending_approvals(
        self, reaches: Sequence[str], limit: int, behind: PendingApprovalPosition | None = None
    ) -> PendingApprovalPage:
        """Return up to `limit` calls that wait for an approval and have not expired, newest first. Their conversation
        keys begin with one of `reaches`. Unreadable calls are left out.
        """

    async def recent_turns(self, person: str, reach: str, limit: int) -> Sequence[Turn]:
        """Return up to `limit` recent turns of this principal in conversations with the key prefix `reach`, newest
        first. Unreadable turns are left out.
        """

    async def open_elicitations(self, person: str, reach: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of open elicitations of this principal in conversations with the key prefix `reach`,
        newest first.
        """


class ActiveThreads(Protocol):
    """Threads in which users and the bot are active."""

    async def active_conversations(self, reach: str, seconds: float, limit: int) -> Sequence[ConversationKey]:
        """Return up to `limit` conversations with the key prefix `reach` and a turn in the last `seconds`, newest
        first.
        """
