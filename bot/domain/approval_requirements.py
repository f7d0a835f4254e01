"""Requirements of an approval: approvers, quorum and expiry.

A rule that asks may have requirements (`bot.domain.policies`). An approval keeps its own (`bot.domain.approvals`). The
engine checks them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from bot.i18n import gettext_lazy

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
    """ALLOWED if the user who asked may approve the call (ADR 39); otherwise the reason why an approver must. The value
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
    SelfApproval.OTHERS: gettext_lazy("An approver must approve this, because it names other people or places"),
    SelfApproval.TAINT: gettext_lazy("An approver must approve this, because the model has read words of others"),
}


_REASONS_OF_CALL = (SelfApproval.DESTRUCTIVE, SelfApproval.UNTRUSTED, SelfApproval.UNREVIEWED, SelfApproval.OTHERS)


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

    @property
    def asker_may_approve(self) -> bool:
        """True if the user who asked may approve the call without being an approver."""
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
        return ApprovalRequirements(
            approvers=tuple(dict.fromkeys((*self.approvers, *other.approvers))),
            four_eyes=self.four_eyes or other.four_eyes,
            quorum=max(self.quorum, other.quorum),
            expires=min((moment for moment in (self.expires, other.expires) if moment is not None), default=None),
            on_timeout=_stricter(self, other),
            remind=self.remind or other.remind,
            deliver=self.deliver | other.deliver,
            self_approval=self.restrict(other.self_approval).self_approval,
        )


NO_REQUIREMENTS = ApprovalRequirements()


def strictest(several: Iterable[ApprovalRequirements]) -> ApprovalRequirements:
    """Return requirements that fulfil all of these."""
    combined = NO_REQUIREMENTS
    for requirements in several:
        combined = combined.combine(requirements)
    return combined


def _stricter(first: ApprovalRequirements, second: ApprovalRequirements) -> OnTimeout | None:
    """Return the stricter outcome. A requirement with a time limit and no outcome of its own means denial."""
    either = first.on_timeout or second.on_timeout
    over = any(
        requirements.on_timeout is OnTimeout.DENY or (requirements.on_timeout is None and requirements.expires)
        for requirements in (first, second)
    )
    return OnTimeout.DENY if either and over else either
