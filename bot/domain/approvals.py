"""Approvals of tool calls: requirements, requests, targets of their cards, decisions, and results of a decision.

A rule that asks may have requirements; an approval keeps its own. In a rule, a destination is a place or APPROVERS. A
stored approval holds the resolved places and users (`bot.engine.policy.authorization`), which the platforms read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import Any

from bot.domain.conversations import Author
from bot.domain.secrets import StoredSecret
from bot.domain.tools import Tool, digest
from bot.i18n import english, gettext_lazy

MEMBERS = "members"
"""Every full member of the workspace, without guests and external users."""
ASKER = "asker"
"""The user who asked."""
THREAD = "thread"
"""Destination of the card: the conversation itself."""
APPROVERS = "approvers"
"""Destination of the card: a direct message to each permitted approver."""
ADMINISTRATOR = "administrator"
"""Possible approver of a call for which no approver is named."""


class ApprovalNotice(StrEnum):
    """Notice of a call to a possible approver: a mention on its card, a direct message, or none."""

    MENTION = "mention"
    PRIVATE = "private"
    NONE = "none"


class OnTimeout(StrEnum):
    """Outcome of an expired approval: it counts as denied, or stays open."""

    DENY = "deny"
    KEEP = "keep"


class SelfApproval(StrEnum):
    """ALLOWED if the asker may approve the call (ADR 39); otherwise the reason why an approver must. The value
    is stored; requirements of an older release have UNKNOWN.
    """

    UNKNOWN = ""
    ALLOWED = "allowed"
    RULE = "rule"
    """A rule names the approvers, or another place for the card."""
    SETTING = "setting"
    """The operator's file has `self_approval = false`."""
    PROFILE = "profile"
    """The conversation's profile names the approvers."""
    PROGRAM = "program"
    """An API client has asked."""
    OUTSIDER = "outsider"
    """A guest or an external user has asked."""
    DESTRUCTIVE = "destructive"
    UNTRUSTED = "untrusted"
    UNREVIEWED = "unreviewed"
    OTHERS = "others"
    TAINT = "taint"

    @property
    def reason(self) -> str:
        """Why an approver must approve, a sentence without its full stop; empty if the rules of the call say so."""
        return str(_REASONS.get(self, ""))


_REASONS = {
    SelfApproval.SETTING: gettext_lazy("An approver must approve this, as the operator has set"),
    SelfApproval.PROFILE: gettext_lazy("An approver must approve this, as the profile of this place says"),
    SelfApproval.OUTSIDER: gettext_lazy(
        "An approver must approve this, because guests and users of other workspaces may not"
    ),
    SelfApproval.DESTRUCTIVE: gettext_lazy("An approver must approve this, because it may delete data"),
    SelfApproval.UNTRUSTED: gettext_lazy("An approver must approve this, because its server is not marked trusted"),
    SelfApproval.UNREVIEWED: gettext_lazy(
        "An approver must approve this, because its definition is not the pinned one"
    ),
    SelfApproval.OTHERS: gettext_lazy("An approver must approve this, because it may concern other people or places"),
    SelfApproval.TAINT: gettext_lazy("An approver must approve this, because the model has read words of others"),
}


_REASONS_OF_CALL = (SelfApproval.DESTRUCTIVE, SelfApproval.UNTRUSTED, SelfApproval.UNREVIEWED, SelfApproval.OTHERS)


@dataclass(frozen=True, slots=True)
class Escalation:
    """Approvers `to` that may approve as well once the card was posted `after` seconds ago."""

    after: float
    to: frozenset[str]


@dataclass(frozen=True, slots=True)
class ApprovalRequirements:
    """Requirements of an approval.

    An approver must be in each set of `approvers`: principals, roles, MEMBERS or ASKER. Without a set, the approvers of
    the profile or the settings apply. `four_eyes` excludes the asker and all editors of the arguments. `quorum` is the
    number of required approvals; one denial is enough to deny. `expires` is in seconds, None for the setting's value.
    `deliver` is the destination of the card instead of the conversation: places (`slack:T1:C9`) and APPROVERS; in a
    stored approval, places and people (`bot.domain.approvals`). `self_approval` is of the call, not of a rule.
    """

    approvers: tuple[frozenset[str], ...] = ()
    four_eyes: bool = False
    quorum: int = 1
    expires: float | None = None
    on_timeout: OnTimeout | None = None
    remind: bool = False
    deliver: frozenset[str] = frozenset()
    self_approval: SelfApproval = SelfApproval.UNKNOWN
    escalate: Escalation | None = None

    def after(self, seconds: float) -> ApprovalRequirements:
        """Return the requirements of a call whose card was posted so long ago."""
        if self.escalate is None or seconds < self.escalate.after:
            return self
        return replace(self, approvers=tuple(entries | self.escalate.to for entries in self.approvers))

    @property
    def asker_may_approve(self) -> bool:
        """True if the asker may approve the call without being an approver."""
        return self.self_approval is SelfApproval.ALLOWED and not self.say_who

    def restrict(self, reason: SelfApproval) -> ApprovalRequirements:
        """Return the requirements with `reason` applied: an earlier reason stays, and ALLOWED changes nothing."""
        return replace(self, self_approval=reason) if self.self_approval is SelfApproval.ALLOWED else self

    def restrict_by_taint(self, *, is_allowed: bool) -> ApprovalRequirements:
        """Return the requirements of a call that asks because of words of others. If a rule lets it run otherwise
        (`is_allowed`), the properties of the call are not the reason why it asks.
        """
        if is_allowed and self.self_approval in _REASONS_OF_CALL:
            return replace(self, self_approval=SelfApproval.TAINT)
        return self.restrict(SelfApproval.TAINT)

    @property
    def say_who(self) -> bool:
        """True if the requirements restrict the approvers or their number, not only the time."""
        return bool(self.approvers) or self.four_eyes or self.quorum > 1

    def combine(self, other: ApprovalRequirements) -> ApprovalRequirements:
        """Return requirements that fulfil both: the stricter of each, and all destinations of both."""
        # A requirement with a time limit and no outcome of its own means denial.
        either = self.on_timeout or other.on_timeout
        over = any(
            requirements.on_timeout is OnTimeout.DENY or (requirements.on_timeout is None and requirements.expires)
            for requirements in (self, other)
        )
        return ApprovalRequirements(
            approvers=tuple(dict.fromkeys((*self.approvers, *other.approvers))),
            four_eyes=self.four_eyes or other.four_eyes,
            quorum=max(self.quorum, other.quorum),
            expires=min((moment for moment in (self.expires, other.expires) if moment is not None), default=None),
            on_timeout=OnTimeout.DENY if either and over else either,
            remind=self.remind or other.remind,
            deliver=self.deliver | other.deliver,
            self_approval=self.restrict(other.self_approval).self_approval,
            escalate=_joint_escalation(self, other),
        )


NO_REQUIREMENTS = ApprovalRequirements()


def strictest(several: Iterable[ApprovalRequirements]) -> ApprovalRequirements:
    """Return requirements that fulfil all of these."""
    return reduce(ApprovalRequirements.combine, several, NO_REQUIREMENTS)


def _joint_escalation(first: ApprovalRequirements, second: ApprovalRequirements) -> Escalation | None:
    """Return the escalation that both permit. Requirements without approvers permit every one."""
    if not first.approvers or not second.approvers:
        return second.escalate if not first.approvers else first.escalate
    if first.escalate is None or second.escalate is None:
        return None
    return Escalation(max(first.escalate.after, second.escalate.after), first.escalate.to & second.escalate.to)


@dataclass(frozen=True, slots=True)
class ThreadScope:
    """All calls of the tool that the same person asks for in this thread, while it is used."""


@dataclass(frozen=True, slots=True)
class ArgumentsScope:
    """The same call again, with exactly these arguments, by the same person in this thread, while it is used."""


@dataclass(frozen=True, slots=True)
class HoursScope:
    """All calls of the tool that the same person asks for in this workspace, for some hours."""

    hours: float


@dataclass(frozen=True, slots=True)
class PermanentScope:
    """All calls of the tool in this workspace, until the grant is revoked."""


Scope = ThreadScope | ArgumentsScope | HoursScope | PermanentScope
_SCOPE_NAMES = {ThreadScope: "thread", ArgumentsScope: "arguments", HoursScope: "hours", PermanentScope: "always"}


def scope_name(scope: Scope) -> str:
    """Return the name of a scope as grants store and list it."""
    return _SCOPE_NAMES[type(scope)]


def parse_scope(word: str, seconds: float | None) -> Scope | None:
    """Return the scope with this stored name, for a grant that lasts `seconds`; None for a name of another release."""
    if word == "hours":
        return None if seconds is None else HoursScope(round(seconds / 3600, 2))
    scopes: tuple[Scope, ...] = (ThreadScope(), ArgumentsScope(), PermanentScope())
    return next((scope for scope in scopes if scope_name(scope) == word), None)


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
class Approver:
    """User or group that may approve a call, for display and notices: a principal, MEMBERS or ADMINISTRATOR. `notice`
    is how the approver learns of the call.
    """

    principal: str
    name: str = ""
    notice: ApprovalNotice = ApprovalNotice.NONE


@dataclass(frozen=True, slots=True)
class PossibleApprovers:
    """Approvers of a call as of its request. One has to be in each of `sets`. `note` is the reason why the card stays
    in the conversation although the approvers were to get it; empty otherwise.
    """

    sets: tuple[tuple[Approver, ...], ...] = ()
    note: str = ""

    @property
    def all(self) -> tuple[Approver, ...]:
        """Approvers of all sets, each once."""
        return tuple({approver.principal: approver for approvers in self.sets for approver in approvers}.values())

    def named(self, text: str) -> str:
        """Return the text with names in place of these approvers' principals."""
        names = {approver.principal: approver.name for approver in self.all if approver.name}
        return re.sub(r"[a-z][a-z-]*:[\w:-]+", lambda found: names.get(found[0], found[0]), text)

    def with_notice(self, notice: ApprovalNotice) -> tuple[Approver, ...]:
        """Return the approvers with this notice."""
        return tuple(approver for approver in self.all if approver.notice is notice)


UNKNOWN_APPROVERS = PossibleApprovers()


@dataclass(frozen=True, slots=True)
class Approval:
    """Request to approve exactly one call.

    `id` is random and identifies the card. `revision` grows when the arguments change, so that a button on an old card
    has no effect. `fingerprint` is over server, tool, tool definition and arguments. `expires_in` is in seconds from
    the posting of the card. `expires_at` is epoch seconds, None before that or if the approval never expires.
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
    """Arguments of the model's request, if a user has revised them since; otherwise None."""
    revised_by: str = ""
    editors: frozenset[str] = frozenset()
    """Principals of all users that have revised the arguments."""
    requirements: ApprovalRequirements = NO_REQUIREMENTS
    """Requirements as of the request. Later rules can only add to them."""
    possible_approvers: PossibleApprovers = UNKNOWN_APPROVERS
    approver_names: tuple[str, ...] = ()
    """Names of the users that have approved this revision, in order."""
    remind_in: float | None = None
    """Seconds from the posting of the card to the next notice to the approvers; None without one."""
    waited: float = field(default=0.0, compare=False)
    """Seconds since the card was posted, when this was read."""
    granted: Scope | None = None
    """Scope granted with the approval; None without a grant."""
    secrets: tuple[StoredSecret, ...] = ()
    """Positions of the server's stored secrets in the arguments, as of the request."""
    proposed_secrets: tuple[StoredSecret, ...] = ()
    """The same for `proposed`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of one user on one revision of an approval. The model sees the `reason` of a denial. `is_automatic` is
    True for a denial by the program, because there was no user to ask: `by` is the user that it denies for, and is not
    recorded as the decider.
    """

    approval_id: str
    revision: int
    type: DecisionType
    by: Author
    reason: str = ""
    is_automatic: bool = False


@dataclass(frozen=True, slots=True)
class ApproverEvidence:
    """Evidence for a decision: the user's matching principal, groups and roles, and the required number of approvals.
    Every approver must be in each set of `approvers` and not in `excluded`. These are checked again for earlier
    approvals, because fewer requirements may have applied then. `must_view` is True if the approval counts only after
    this user has opened the whole call. `self_approval` is True if the user has no other right than having asked.
    `delegator` is the user whose right counts, if it is not the own one.
    """

    evidence: str = ""
    quorum: int = 1
    approvers: tuple[frozenset[str], ...] = field(default=(), compare=False)
    excluded: frozenset[str] = field(default=frozenset(), compare=False)
    must_view: bool = False
    self_approval: bool = False
    delegator: Author | None = None

    def accepts(self, person: str, evidence: str) -> bool:
        """Return True if an earlier approval by this principal, with this evidence, also fulfils these requirements."""
        known = {person, *evidence.split(", ")}
        users = {person, right_holder(person, evidence)}
        return not users & self.excluded and all(known & approvers for approvers in self.approvers)

    def delegated_by(self, delegator: Author) -> ApproverEvidence:
        """Return this evidence of the delegator's right, for a decision by a delegate."""
        return replace(self, evidence=f"{self.evidence}, {_FOR}{delegator.principal}", delegator=delegator)


_FOR = "for "


def right_holder(person: str, evidence: str) -> str:
    """Return the principal whose right a decision by this user has used: the user, or the user's delegator."""
    return evidence.rpartition(f", {_FOR}")[2] if f", {_FOR}" in evidence else person


NO_EVIDENCE = ApproverEvidence()
"""Evidence without requirements: one approval is enough."""
ApprovedTogether = Mapping[tuple[str, int], ApproverEvidence]
"""Approvals that may be approved together with another one: evidence by id and revision."""
NOBODY_ELSE: ApprovedTogether = {}


@dataclass(frozen=True, slots=True)
class Revision:
    """New arguments for an approval, in place of those of revision `of`. `requirements` and `possible_approvers` are
    those with the new arguments; None if they stay.
    """

    approval_id: str
    of: int
    arguments: Mapping[str, Any]
    fingerprint: str
    by: Author
    secrets: tuple[StoredSecret, ...] = ()
    requirements: ApprovalRequirements | None = None
    possible_approvers: PossibleApprovers | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision has settled the approval."""

    type: DecisionType


@dataclass(frozen=True, slots=True)
class MoreApprovalsNeeded:
    """The approval was counted; `needed` more are required."""

    needed: int


@dataclass(frozen=True, slots=True)
class AlreadyDecided:
    """The approval was already decided, has expired or was stopped. `how` is a sentence for the user of the
    button.
    """

    how: str


@dataclass(frozen=True, slots=True)
class StaleRevision:
    """The arguments have changed since the card was posted."""


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """The user may not decide this call. `reason` names the permitted users. `recorded` is the reason in English, for
    the audit; without it, the reason is a lazy text.
    """

    reason: str
    recorded: str = field(default="", compare=False)

    @property
    def english(self) -> str:
        """The reason in English."""
        return self.recorded or english(self.reason)


@dataclass(frozen=True, slots=True)
class ApprovalNotFound:
    """No approval has this id."""


@dataclass(frozen=True, slots=True)
class ViewRequired:
    """Part of the call looks like a secret, and the user has not opened the whole call at this revision."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Page of a view of the whole call; the first `number` is 1. A view without pages is page 1 of 1. Number 0 is an
    edit form, which need not show all of the call.
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


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """Channel of the workspace of the call, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class DirectTarget:
    """Direct conversation with one user, by the user's id."""

    id: str


Destination = ChannelTarget | DirectTarget


def approval_targets(approval: Approval | None) -> tuple[Destination, ...]:
    """Return the places of the card instead of the conversation, in a fixed order; empty if it stays there."""
    targets: list[Destination] = []
    for target in sorted(approval.requirements.deliver if approval is not None else ()):
        match target.split(":"):
            case [_platform, _workspace, channel]:
                targets.append(ChannelTarget(channel))
            case [_platform, person]:
                targets.append(DirectTarget(person))
    return tuple(targets)
