"""Grants: permissions by an approver for later calls of the same kind.

A grant names a user, a tool with its definition, a place and a duration. `bot.engine.approvals` decides if one may be
given. Only the database's clock decides if one is in force. Policies are evaluated first: a denial by a policy is not
affected by grants.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.approvals import NO_REQUIREMENTS, ApprovalRequirements, Scope
from bot.domain.conversations import ConversationKey
from bot.domain.tools import digest

IDLE_SECONDS = 3600.0
"""Seconds without use after which a grant for one thread ends."""
LONGEST_HOURS = 7 * 24.0
DELEGATION = "delegation"
"""Scope of a grant of no calls: `granted_by` hands the right to decide to `person`, in the workspace `place`."""


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """Requested grant for later calls. `everyone`: for all users instead of one. `destructive`: also for a destructive
    tool. Both need an admin, and so does a PermanentScope.
    """

    scope: Scope
    everyone: bool = False
    destructive: bool = False


@dataclass(frozen=True, slots=True)
class CallToCover:
    """Call that waits for an approval, reduced to the facts that a grant is compared with.

    `server` is the server's id, `fingerprint` that of an approval, `asker` a principal, `rule` the id of the rule that
    asks.
    """

    server: str
    tool: str
    definition: str
    fingerprint: str
    conversation: ConversationKey
    asker: str
    destructive: bool
    rule: str = ""
    requirements: ApprovalRequirements = NO_REQUIREMENTS


@dataclass(frozen=True, slots=True)
class Grant:
    """Stored grant.

    `place` is the text of a conversation's key, or its prefix `platform:workspace`. `person` is a principal, empty for
    everyone. `fingerprint` is that of one call, empty for all calls of the tool. `rule` and `requirements_digest` are
    those that asked: a call that another rule or other requirements ask for is not covered. `lasts` is in seconds, None
    for a permanent grant. With `idle` the time restarts at each use.

    `created_at`, `expires_at` and `used_at` are epoch seconds of the database's clock.
    """

    id: str
    scope: str
    server: str
    server_name: str
    tool: str
    definition: str
    place: str
    person: str
    granted_by: str
    granted_name: str
    approval_id: str
    rule: str = ""
    requirements_digest: str = ""
    fingerprint: str = ""
    destructive: bool = False
    lasts: float | None = None
    idle: bool = False
    created_at: float = 0.0
    expires_at: float | None = None
    used_at: float | None = None


@dataclass(frozen=True, slots=True)
class GrantUse:
    """Grant that a call ran on, stored with the call. `by` is the principal that gave it. `fingerprint` is over server,
    tool, definition and arguments of the call. `rule` and `terms` are those that would have asked. `until` is when the
    grant ends without further use, in epoch seconds; None if it is permanent.
    """

    id: str
    by: str
    name: str
    fingerprint: str
    rule: str = ""
    terms: str = ""
    until: float | None = None


def covers(grant: Grant, wanted: CallToCover) -> bool:
    """Return True if a grant in force lets this call run without an approval of its own."""
    same_tool = (grant.server, grant.tool, grant.definition) == (wanted.server, wanted.tool, wanted.definition)
    here = grant.place in (str(wanted.conversation), wanted.conversation.workspace_key)
    theirs = grant.person in ("", wanted.asker)
    these = grant.fingerprint in ("", wanted.fingerprint)
    asked_alike = grant.rule == wanted.rule and grant.requirements_digest in accepted_digests(wanted.requirements)
    return same_tool and here and theirs and these and asked_alike and _may_stand_in(grant, wanted)


def requirements_digest(requirements: ApprovalRequirements, *, self_approved: bool = False) -> str:
    """Return a digest of the requirements that a grant was given on. Expiry, reminder and destination are not part of
    it. `self_approved` is True if the asker has given the grant without being an approver.
    """
    approvers = sorted(sorted(approver) for approver in requirements.approvers)
    by_asker = ["asker"] if self_approved else []
    return digest([approvers, requirements.four_eyes, requirements.quorum, *by_asker])


def accepted_digests(requirements: ApprovalRequirements) -> frozenset[str]:
    """Return the digests of grants that answer a call with these requirements. A grant of the asker answers only calls
    that the asker may approve.
    """
    digests = {requirements_digest(requirements)}
    if requirements.asker_may_approve:
        digests.add(requirements_digest(requirements, self_approved=True))
    return frozenset(digests)


def _may_stand_in(grant: Grant, wanted: CallToCover) -> bool:
    """Return True if a grant by one user can ever replace the approval of such a call."""
    if wanted.destructive and not grant.destructive:
        return False
    own = grant.granted_by == wanted.asker
    return wanted.requirements.quorum <= 1 and not (wanted.requirements.four_eyes and own)
