"""Reports on past turns and calls: activity of one user, approvals that wait for one reader, metrics."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.domain.agents import AgentRef
from bot.domain.approvals import NO_REQUIREMENTS, Approval, ApprovalRequirements
from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, ConversationKey
from bot.domain.servers import EVERYWHERE
from bot.domain.turns import StepStatus, Turn

LONGEST_ERROR = 2_000
"""Characters of a call's error in a list."""


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """Call that waits for an approval, without its arguments: the fields that determine its approvers. `editors` are
    the principals that have edited the arguments. `asked_at` is in epoch seconds, `waited` are the seconds since the
    card was posted. `agent` is the one that was asked, None for the profile of the place.
    """

    approval_id: str
    conversation: ConversationKey
    asked_by: Author
    requirements: ApprovalRequirements = NO_REQUIREMENTS
    editors: frozenset[str] = frozenset()
    asked_at: float = 0.0
    agent: AgentRef | None = None
    waited: float = 0.0

    @classmethod
    def of(cls, turn: Turn, approval: Approval) -> PendingApproval:
        """Return the call of an approval in a turn, without its time."""
        return cls(
            approval.id,
            turn.conversation,
            approval.requested_for,
            approval.requirements,
            approval.editors,
            agent=turn.question.agent,
            waited=approval.waited,
        )


@dataclass(frozen=True, slots=True)
class PendingApprovalPosition:
    """Position in a list of waiting calls: after the call requested at `at` with this approval id."""

    at: float
    approval_id: str

    def __str__(self) -> str:
        return f"{self.at!r}_{self.approval_id}"

    @classmethod
    def parse(cls, text: str) -> PendingApprovalPosition:
        """Parse the text form of a position. Raises ValueError for any other text."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError("not a position")
        return cls(float(match[1]), match[2])


_POSITION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)_([A-Za-z0-9_-]{1,100})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PendingApprovalPage:
    """Page of waiting calls. `behind` is the start of the next page, None on the last one."""

    calls: Sequence[PendingApproval]
    behind: PendingApprovalPosition | None = None


class UserActivity(Protocol):
    """Activity of one user now."""

    async def pending_approvals(
        self,
        key_prefixes: Sequence[str],
        limit: int,
        behind: PendingApprovalPosition | None = None,
        *,
        oldest_first: bool = False,
    ) -> PendingApprovalPage:
        """Return up to `limit` unexpired calls that wait for an approval, newest first unless `oldest_first`,
        in conversations with one of the key prefixes. Unreadable calls are left out.
        """

    async def recent_turns(self, principal: str, key_prefix: str, limit: int) -> Sequence[Turn]:
        """Return up to `limit` recent turns of this principal in conversations with the key prefix, newest first.
        Unreadable turns are left out.
        """

    async def open_elicitations(self, principal: str, key_prefix: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of open elicitations of this principal in conversations with the key prefix, newest
        first.
        """


BATCH = 500
"""Calls read in one transaction."""


async def read_pending_approvals(
    activity: UserActivity,
    key_prefixes: Sequence[str],
    concerns: Callable[[PendingApproval], Awaitable[bool]],
    *,
    limit: int,
    most_read: int,
    behind: PendingApprovalPosition | None = None,
    oldest_first: bool = False,
) -> PendingApprovalPage:
    """Return up to `limit` calls that concern the reader, newest first unless `oldest_first`. No more are read than the
    page needs, and at most `most_read`, rounded up to a BATCH: a page with fewer calls than `limit` has a next one as
    long as its `behind` is not None.
    """
    calls: list[PendingApproval] = []
    for _ in range(0, most_read, BATCH):
        page = await activity.pending_approvals(key_prefixes, BATCH, behind, oldest_first=oldest_first)
        calls += [call for call in page.calls if await concerns(call)]
        behind = page.behind
        if len(calls) > limit:
            last = calls[limit - 1]
            return PendingApprovalPage(calls[:limit], PendingApprovalPosition(last.asked_at, last.approval_id))
        if behind is None:
            break
    return PendingApprovalPage(calls, behind)


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
class CallQuery:
    """Filter of tool calls; all conditions have to match. `workspace` is EVERYWHERE for all, `server` a slug or an id,
    `tool` the server's own name of the tool, `asked_by` a principal. `since` (inclusive) and `until` (exclusive) are
    epoch seconds.
    """

    workspace: str = EVERYWHERE
    server: str = ""
    tool: str = ""
    statuses: tuple[StepStatus, ...] = ()
    asked_by: str = ""
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class CallSummary:
    """Requested tool call: its name (`server.tool`, or an unknown name), users and status. `at` is epoch seconds;
    `seconds` is the duration. `error` is the text of a call without a result, at most LONGEST_ERROR characters.
    """

    at: float
    name: str
    status: str
    asked_by: str
    decided_by: str
    seconds: float | None
    turn_id: str
    n: int
    conversation: ConversationKey
    error: str = ""


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

    requested: int = 0
    approved: int = 0
    denied: int = 0
    expired: int = 0
    median: float | None = None

    @property
    def others(self) -> int:
        """Approvals that are still open, whose turn was stopped, or that could not be delivered."""
        return self.requested - self.approved - self.denied - self.expired


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
        self, key_prefix: str, principal: str, limit: int, offset: int
    ) -> tuple[Sequence[ConversationSummary], int]:
        """Return a page of the conversations with the key prefix, newest first, and their total number. `principal`
        selects conversations with a turn of that user; empty for all.
        """

    async def summary(self, conversation: ConversationKey) -> ConversationSummary | None:
        """Return one conversation as in a list, or None."""

    async def create(self, conversation: ConversationKey, title: str) -> bool:
        """Create a conversation without turns, with this title. Return False if it exists."""

    async def has_participant(self, conversation: ConversationKey, principal: str) -> bool:
        """Return True if this principal is the author of a turn in the conversation."""

    async def delete(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation and all its rows but the audit. Return False if it does not exist or has an unfinished
        turn.
        """

    async def calls(self, query: CallQuery, limit: int, offset: int) -> tuple[Sequence[CallSummary], int]:
        """Return a page of the matching calls, newest first, and their total number."""

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
