"""Reports on past turns and calls, for users and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, ConversationKey


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """Conversation in a list. `state` is that of the HTTP API. Times are epoch seconds."""

    key: ConversationKey
    title: str
    state: str
    turns: int
    started_by: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class CallSummary:
    """Requested tool call: its name (`server.tool`, or an unknown name), users and status. `at` is epoch seconds;
    `seconds` is the duration.
    """

    at: float
    name: str
    status: str
    asked_by: str
    decided_by: str
    seconds: float | None
    turn_id: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unfinished work now. `turns` are live turns by status, and `approvals` the calls among them that wait for an
    approval; both cover the oldest 10,000 live turns. `oldest_ready` is the age in seconds of the oldest turn that
    could start, 0 without one. `drawings` are turns with a stale view that are not running, at most 10,000.
    """

    turns: Mapping[str, int]
    oldest_ready: float
    approvals: int
    drawings: int


@dataclass(frozen=True, slots=True)
class ServerActivity:
    """Calls of one server's tools that have run: their number, the number of successes, and the median and the 95th
    percentile of their durations in seconds; None without known durations.
    """

    server: str
    calls: int
    succeeded: int
    median: float | None
    slowest: float | None


@dataclass(frozen=True, slots=True)
class ApprovalActivity:
    """Requested approvals by their outcome so far. `median` is the median time to a decision in seconds; None without a
    decision.
    """

    asked: int = 0
    approved: int = 0
    denied: int = 0
    expired: int = 0
    median: float | None = None

    @property
    def others(self) -> int:
        """Approvals that are still open, whose turn was stopped, or that could not be delivered."""
        return self.asked - self.approved - self.denied - self.expired


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity in a period: requested turns by status; servers, the busiest first. `whole` is False if only the
    latest part was counted.
    """

    turns: Mapping[str, int]
    servers: Sequence[ServerActivity]
    approvals: ApprovalActivity
    whole: bool = True


class ReportingStore(Protocol):
    """Reports on past activity."""

    async def conversations(
        self, reach: str, person: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """Return a page of the conversations with the key prefix `reach`, newest first, and their total number.
        `person`, a principal, selects conversations with a turn of that user; empty for all.
        """

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        """Return one conversation as in a list, or None."""

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        """Create a conversation without turns, with this title. Return False if it exists."""

    async def has_participant(self, conversation: ConversationKey, person: str) -> bool:
        """Return True if this principal is the author of a turn in the conversation."""

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation and all its rows but the audit. Return False if it does not exist or has an unfinished
        turn.
        """

    async def calls(self, server: str, workspace: str, limit: int, offset: int) -> tuple[Sequence[CallSummary], int]:
        """Return a page of the calls to a server's tools in a workspace, newest first, and their total number. `server`
        is a slug, empty for all servers.
        """

    async def count_pending(self, server: str) -> int:
        """Return the number of calls to a server's tools that wait for an approval now."""

    async def audit(self, query: AuditQuery, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        """Return a page of the matching audit rows, newest first, and their total number."""

    async def backlog(self) -> Backlog:
        """Return the unfinished work of all workspaces."""

    async def activity(self, since: float, workspace: str, server: str) -> Activity:
        """Return the activity since then (epoch seconds) in a workspace, empty for all, and of one server, by id, empty
        for all. Turns are counted for all servers in any case.
        """
