"""Approver check: decides if a member's decision on an approval counts.

The check runs on every decision, with a freshly looked up member. The data of a button is not trusted. The evidence is
stored with the decision.
"""

from __future__ import annotations

from bot.domain.api_clients import ApiRole
from bot.domain.approval_requirements import ASKER, MEMBERS, ApprovalRequirements
from bot.domain.approvals import ApproverEvidence, DecisionType, NotAllowed
from bot.domain.conversations import Author, Member
from bot.engine.policy import Approvers, is_program

_ASKED = "You asked for this yourself, so others have to approve it."
_EDITED = "You have edited it, so others have to approve it."


def check_approver(
    signatories: Approvers,
    terms: ApprovalRequirements,
    member: Member,
    verdict: DecisionType,
    *,
    asker: Author,
    editors: frozenset[str] = frozenset(),
) -> ApproverEvidence | NotAllowed:
    """Return the evidence on which the decision counts, or the reason why it does not. `editors` are the principals who
    edited the arguments.

    Authors may always deny their own calls: that equals a stop. A denial needs an approver, but no four eyes.
    """
    is_author = member.author.principal == asker.principal
    if is_author and verdict is DecisionType.DENY:
        return ApproverEvidence(ASKER, terms.quorum)
    needed = f"It needs {signatories.needed(terms)}."
    evidence = _evidence(signatories, terms, asker, member)
    if not evidence:
        return NotAllowed(f"You may not approve this. {needed}")
    if terms.four_eyes and verdict is DecisionType.APPROVE:
        if is_author:
            return NotAllowed(f"{_ASKED} {needed}")
        if member.author.principal in editors:
            return NotAllowed(f"{_EDITED} {needed}")
    excluded = frozenset({asker.principal, *editors}) if terms.four_eyes else frozenset()
    return ApproverEvidence(evidence, terms.quorum, terms.approvers, excluded)


def _evidence(signatories: Approvers, terms: ApprovalRequirements, asker: Author, member: Member) -> str:
    """Return the principals or roles by which the member is in each set of approvers; empty if one set lacks the
    member.
    """
    # Members and admins of another platform have no rights here. An API client belongs to its token's workspace.
    same_platform = member.author.platform == asker.platform or is_program(member)
    if not terms.approvers:
        return signatories.evidence(member) if same_platform or member.author.principal == signatories.operator else ""
    if not same_platform or member.guest or member.external:
        return ""
    matches = [_entry(approvers, asker, member) for approvers in terms.approvers]
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
    return MEMBERS if MEMBERS in approvers and _is_member(member, asker) else ""


def _is_member(member: Member, asker: Author) -> bool:
    """Return True for a full member of the author's workspace. An API client counts only among API clients, with an
    approver's token.
    """
    if is_program(member):
        return asker.platform == member.author.platform and ApiRole.APPROVER.principal in member.roles
    return True
