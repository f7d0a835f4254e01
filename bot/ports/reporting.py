"""Reports on past turns and calls, for users and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, ConversationKey


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list. `state` is the word of the HTTP API for it. Times are epoch seconds."""

    key: ConversationKey
    title: str
    state: str
    turns: int
    started_by: str
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class CallSummary:
    """One tool call that was asked for: what (`server.tool`, or a name the model made up), by whom, how it ended.
    Times are epoch seconds.
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
    """Unfinished work now: live turns by status; age in seconds of the oldest turn that could start; calls that wait
    for an approval; turns with a stale view. Each count stops at 10,000.
    """

    turns: Mapping[str, int]
    oldest_ready: float
    approvals: int
    drawings: int


@dataclass(frozen=True, slots=True)
class ServerActivity:
    """The calls to one server's tools that have run: how many, how many of them succeeded, and how long half of them
    and 95 of 100 took at most, in seconds; None if that is not known of any.
    """

    server: str
    calls: int
    succeeded: int
    median: float | None
    slowest: float | None


@dataclass(frozen=True, slots=True)
class ApprovalActivity:
    """The signatures that were asked for, and what has become of them by now. `median` is how many seconds half of the
    decisions took at most; None if nobody has decided any.
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
        """A page of the conversations whose key begins with `reach`, the latest first, and how many there are in all.
        `person`, a principal, narrows it to those in which that person has asked something; empty for all.
        """

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        """One conversation as a list has it; None if there is none."""

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        """Keep a conversation in which nothing was said yet, under a title of its own. False if there is one."""

    async def has_participant(self, conversation: ConversationKey, person: str) -> bool:
        """Return True if this principal is the author of a turn in the conversation."""

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit. False if there is none or it is not at rest."""

    async def calls(self, server: str, workspace: str, limit: int, offset: int) -> tuple[Sequence[CallSummary], int]:
        """A page of the calls to a server's tools (its slug; empty for all servers) in a workspace, the latest first,
        and how many there are in all.
        """

    async def count_pending(self, server: str) -> int:
        """Return the number of calls to a server's tools that wait for an approval now."""

    async def audit(self, query: AuditQuery, limit: int, offset: int) -> tuple[Sequence[AuditEntry], int]:
        """A page of the audit, the latest row first, and how many rows fit in all."""

    async def backlog(self) -> Backlog:
        """Return the unfinished work of all workspaces."""

    async def activity(self, since: float, workspace: str, server: str) -> Activity:
        """Return the activity since then (epoch seconds) in a workspace, empty for all; with one server, by id, empty
        for all. Turns are those of all servers either way.
        """
