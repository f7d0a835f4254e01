"""A call that waits for a signature: what is asked, who decided what, and how a decision can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.domain.approval_requirements import NO_TERMS, ApprovalRequirements
from bot.domain.argument_secrets import StoredSecret
from bot.domain.conversations import Author
from bot.domain.grants import Scope
from bot.domain.tools import Tool, digest


class ApprovalPolicy(StrEnum):
    """Policy for a requested tool call. AUTO runs read-only tools of trusted servers while their definition matches
    the pin, and asks for everything else.
    """

    ALWAYS_ALLOW = "ALWAYS_ALLOW"
    ALWAYS_DENY = "ALWAYS_DENY"
    ASK_USER = "ASK_USER"
    AUTO = "AUTO"


class DecisionType(StrEnum):
    """Decision on an approval."""

    APPROVE = "approve"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Approval:
    """A request for a signature on exactly one call.

    `id` is random and names the card; `revision` grows when the arguments change, so that a button on an old card
    decides nothing. `fingerprint` is over server, tool, tool definition and arguments. `expires_in` is in seconds and
    runs from the moment the card was posted; `expires_at` is epoch seconds, None until then or where it never expires.
    """

    id: str
    revision: int
    fingerprint: str
    requested_for: Author
    expires_in: float | None
    expires_at: float | None = None
    decided_by: str = ""
    decided_at: float | None = None
    reason: str = ""
    proposed: Mapping[str, Any] | None = None
    """The arguments the model had asked for, where a person has revised them since."""
    revised_by: str = ""
    editors: frozenset[str] = frozenset()
    """The principals of all who have revised them."""
    terms: ApprovalRequirements = NO_TERMS
    """On what terms it was asked for: what rules say since can only add to them."""
    signers: tuple[str, ...] = ()
    """The names of those who have signed this revision, in order."""
    remind_in: float | None = None
    """When those who may sign are reminded, in seconds from when the card was posted; None for never."""
    granted: Scope | None = None
    """Scope granted with the approval; None without a grant."""
    secrets: tuple[StoredSecret, ...] = ()
    """Positions of the server's stored secrets in the arguments, as of the request."""
    proposed_secrets: tuple[StoredSecret, ...] = ()
    """The same for `proposed`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One person's verdict on one revision of one approval. `reason` reaches the model when it is a denial."""

    approval_id: str
    revision: int
    verdict: DecisionType
    by: Author
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ApproverEvidence:
    """On which grounds a decision counts: which principal, group or role the person was found to be, and how many
    people have to sign. Of each set of `approvers` everybody who signs must be one, and nobody of those who are
    `barred`: who has signed before may have done so when less was asked for. `must_view` is True for an approval that
    counts only if this person has opened the whole call.
    """

    evidence: str = ""
    quorum: int = 1
    approvers: tuple[frozenset[str], ...] = field(default=(), compare=False)
    barred: frozenset[str] = field(default=frozenset(), compare=False)
    must_view: bool = False

    def accepts(self, person: str, evidence: str) -> bool:
        """Return True if a decision with this evidence counts beside this one."""
        known = {person, *evidence.split(", ")}
        return person not in self.barred and all(known & approvers for approvers in self.approvers)


NO_EVIDENCE = ApproverEvidence()
"""One signature is enough, as far as whoever decides knows."""
ApprovedTogether = Mapping[tuple[str, int], ApproverEvidence]
"""Approvals, by id and revision, that may be signed along with one, and on which grounds."""
NOBODY_ELSE: ApprovedTogether = {}


@dataclass(frozen=True, slots=True)
class Revision:
    """Other arguments for an approval, asked for instead of those of revision `of`."""

    approval_id: str
    of: int
    arguments: Mapping[str, Any]
    fingerprint: str
    by: Author
    secrets: tuple[StoredSecret, ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """This decision is the one that counts."""

    verdict: DecisionType


@dataclass(frozen=True, slots=True)
class MoreApprovalsNeeded:
    """This signature counts, and so many more are needed."""

    needed: int


@dataclass(frozen=True, slots=True)
class AlreadyDecided:
    """The approval was already decided, has expired or was stopped. `how` is a sentence for the user who pressed the
    button.
    """

    how: str


@dataclass(frozen=True, slots=True)
class StaleRevision:
    """The arguments have changed since the card was drawn."""


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """This person may not decide this call. `reason` says who may."""

    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalNotFound:
    """The id names nothing."""


@dataclass(frozen=True, slots=True)
class ViewRequired:
    """Part of the call looks like a secret, and this person has not opened the whole call at this revision."""


@dataclass(frozen=True, slots=True)
class Portion:
    """One page of a view of the whole call; the first `number` is 1. A view without pages is page 1 of 1. Number 0 is a
    form, which shows the call and need not show all of it.
    """

    number: int = 1
    of: int = 1


WHOLE = Portion()
IN_A_FORM = Portion(0)

DecisionResult = (
    Decided | MoreApprovalsNeeded | AlreadyDecided | StaleRevision | NotAllowed | ApprovalNotFound | ViewRequired
)


def fingerprint(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Return the digest that an approval is bound to: server, tool, definition and exact arguments. The server
    includes its id and address, because one that was removed and added again under its name is another.
    """
    return digest([tool.server, tool.server_id, tool.place, tool.original_name, tool.definition, arguments])
