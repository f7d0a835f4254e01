"""Approvers: admins and approvers, the check of a decision, and the calls that their asker may approve.

`check_approver` runs on every decision, with a freshly looked up member. The data of a button is not trusted. The
evidence is stored with the decision.

The asker may approve a call if all of these conditions hold (ADR 39, ADR 54). An unknown fact needs an approver:

1. No rule names approvers, their number or another place for the card; no profile names approvers; the operator's file
   does not switch it off (`bot.engine.policy.rules`).
2. A full member has asked, or an API client, whose own token then approves: no guest or external user.
3. The tool deletes nothing: it is read-only, or says that it is not destructive. Hints count as for AUTO, for trusted
   servers with a pinned definition.
4. The arguments are known to concern nobody else (`bot.engine.policy.ordinary_arguments`), and none is disguised.
5. The call needs no approval because of words that the model has read (`bot.engine.policy.information_flow`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.domain.api_clients import ApiRole
from bot.domain.approvals import (
    ASKER,
    MEMBERS,
    ApprovalRequirements,
    ApproverEvidence,
    DecisionType,
    NotAllowed,
    SelfApproval,
)
from bot.domain.conversations import HTTP, Author, ConversationKey, Member
from bot.domain.tools import Tool, ToolKind
from bot.engine.policy.ordinary_arguments import concerns_others
from bot.i18n import _, format_alternatives, gettext_lazy

Disguises = Callable[[object], Sequence[str]]
"""Return warnings on the parts of a value that are hidden or look like something else."""
SELF_APPROVED = "asker: not destructive"
"""Evidence of an approval by the asker, as no approver."""
_ASKED = gettext_lazy("You asked for this yourself, so others have to approve it.")
_EDITED = gettext_lazy("You have edited it, so others have to approve it.")


PLATFORM_ADMIN = "platform admin"
"""Evidence of an admin of the platform where the settings name none."""


@dataclass(frozen=True, slots=True)
class Approvers:
    """Admins and approvers, as principals and roles: `slack:U1`, `slack-group:S1`, `console:ana`.

    `operator` is the user at the program's own terminal, with both rights. `programs` are token roles that may
    approve without being named: empty if a profile sets the approvers.
    """

    admins: frozenset[str] = frozenset()
    approvers: frozenset[str] = frozenset()
    operator: str = ""
    programs: frozenset[str] = frozenset({ApiRole.APPROVER.principal})

    def administers(self, member: Member) -> bool:
        """Return True for the operator, named admins, and API clients with an admin's token; without named admins also
        for the platform's own.
        """
        if self.operator and member.author.principal == self.operator:
            return True
        if member.guest or member.external:
            return False
        if is_program(member) and ApiRole.ADMIN.principal in member.roles:
            return True
        is_named = member.author.principal in self.admins or bool(member.roles & self.admins)
        return is_named or (not self.admins and member.platform_admin)

    def evidence(self, member: Member) -> str:
        """Return the principal or role by which this member may approve, such as an approver, an admin or an API client
        with an approver's token; empty if there is none. Guests and external users never may.
        """
        if self.operator and member.author.principal == self.operator:
            return "operator"
        if member.guest or member.external:
            return ""
        own = {member.author.principal, *member.roles}
        named = sorted(own & self.approvers) or sorted(own & self.admins)
        if named:
            return member.author.principal if member.author.principal in named else named[0]
        if is_program(member):
            return next(iter(sorted(own & {*self.programs, ApiRole.ADMIN.principal})), "")
        return PLATFORM_ADMIN if self.administers(member) else ""

    def format_requirements(self, terms: ApprovalRequirements) -> str:
        """Format the required approvers: `slack:U1`, `2 of slack-group:S1, not the asker`."""
        named = [format_alternatives(sorted(approver)) for approver in terms.approvers]
        anyone = ", ".join(sorted(self.approvers or self.admins)) or _("an administrator")
        who = _(" and at once ").join(named) or anyone
        if terms.asker_may_approve:
            return _("the user who asked, or {approvers}", approvers=who)
        if terms.quorum > 1 and terms.four_eyes:
            return _("{n} of {approvers}, neither the asker nor an editor", n=terms.quorum, approvers=who)
        if terms.quorum > 1:
            return _("{n} of {approvers}", n=terms.quorum, approvers=who)
        return _("{approvers}, neither the asker nor an editor", approvers=who) if terms.four_eyes else who


def is_program(member: Member) -> bool:
    """Return True for an API client. The web has checked that its token is valid for the workspace."""
    return member.author.platform == HTTP


def check_approver(
    approvers: Approvers,
    terms: ApprovalRequirements,
    member: Member,
    verdict: DecisionType,
    *,
    asker: Author,
    editors: frozenset[str] = frozenset(),
) -> ApproverEvidence | NotAllowed:
    """Return the evidence on which the decision counts, or the reason why it does not. `editors` are the principals
    that edited the arguments.

    Authors may always deny their own calls: that equals a stop. A denial needs an approver, but no four eyes. The right
    of an approver counts before that of the asker.
    """
    is_author = member.author.principal == asker.principal
    if is_author and verdict is DecisionType.DENY:
        return ApproverEvidence(ASKER, terms.quorum)
    needed = _("It needs {approvers}.", approvers=approvers.format_requirements(terms))
    evidence = _evidence(approvers, terms, asker, member)
    if not evidence and terms.asker_may_approve and is_author and not (member.guest or member.external):
        return ApproverEvidence(SELF_APPROVED, self_approval=True)
    if not evidence:
        reason = terms.self_approval.reason if is_author else ""
        because = [_("{sentence}.", sentence=reason)] if reason else []
        return NotAllowed(" ".join([_("You may not approve this."), *because, needed]))
    if terms.four_eyes and verdict is DecisionType.APPROVE:
        if is_author:
            return NotAllowed(f"{_ASKED} {needed}")
        if member.author.principal in editors:
            return NotAllowed(f"{_EDITED} {needed}")
    excluded = frozenset({asker.principal, *editors}) if terms.four_eyes else frozenset()
    return ApproverEvidence(evidence, terms.quorum, terms.approvers, excluded)


def _evidence(approvers: Approvers, terms: ApprovalRequirements, asker: Author, member: Member) -> str:
    """Return the principals or roles by which the member is in each set of approvers; empty if one set lacks the
    member.
    """
    # Members and admins of another platform have no rights here. An API client belongs to its token's workspace.
    same_platform = member.author.platform == asker.platform or is_program(member)
    if not terms.approvers:
        is_operator = member.author.principal == approvers.operator
        evidence = approvers.evidence(member)
        # A program's call may be decided by people of chats that are named.
        is_named = asker.platform == HTTP and evidence != PLATFORM_ADMIN
        return evidence if same_platform or is_operator or is_named else ""
    if member.guest or member.external or not (same_platform or asker.platform == HTTP):
        return ""
    matches = [
        _entry(accepted if same_platform else accepted - {MEMBERS}, asker, member) for accepted in terms.approvers
    ]
    return ", ".join(dict.fromkeys(matches)) if all(matches) else ""


def _entry(approvers: frozenset[str], asker: Author, member: Member) -> str:
    """Return the entry that matches the member, the most specific first."""
    principal = member.author.principal
    if principal in approvers:
        return principal
    if roles := sorted(member.roles & approvers):
        return roles[0]
    if ASKER in approvers and principal == asker.principal:
        return ASKER
    # An API client counts as a member only among API clients, with an approver's token.
    counts = not is_program(member) or (
        asker.platform == member.author.platform and ApiRole.APPROVER.principal in member.roles
    )
    return MEMBERS if MEMBERS in approvers and counts else ""


def self_approval(
    tool: Tool,
    arguments: Mapping[str, Any],
    asker: Author,
    conversation: ConversationKey,
    reviewed: Callable[[Tool], bool],
    *,
    disguises: Disguises = lambda _value: (),
) -> SelfApproval:
    """Return ALLOWED if this call is one that its asker may approve, otherwise the first reason against it."""
    if tool.kind is ToolKind.CALL and not tool.trusted:
        return SelfApproval.UNTRUSTED
    if tool.may_delete:
        return SelfApproval.DESTRUCTIVE
    if tool.kind is ToolKind.CALL and not reviewed(tool):
        return SelfApproval.UNREVIEWED
    if disguises(arguments) or concerns_others(tool, arguments, asker, conversation):
        return SelfApproval.OTHERS
    return SelfApproval.ALLOWED


def membership_reason(member: Member) -> SelfApproval:
    """Return OUTSIDER for a guest or an external user, otherwise ALLOWED."""
    return SelfApproval.OUTSIDER if member.guest or member.external else SelfApproval.ALLOWED
