"""Whether a decision counts: may this person sign this call, on the terms it was asked on.

Called by the engine for every press of a button, with the person as the platform knows them at that moment. Nothing a
button carries is believed, and what is found here is kept with the decision.
"""

from __future__ import annotations

from bot.domain.api_clients import ApiRole
from bot.domain.approval_requirements import ASKER, MEMBERS, ApprovalRequirements
from bot.domain.approvals import ApproverEvidence, DecisionType, NotAllowed
from bot.domain.conversations import Author, Member
from bot.engine.policy import Approvers, is_program

_ASKED = "You asked for this yourself, so others have to sign it."
_EDITED = "You have changed what it would do, so others have to sign it."


def check_approver(
    signatories: Approvers,
    terms: ApprovalRequirements,
    member: Member,
    verdict: DecisionType,
    *,
    asker: Author,
    editors: frozenset[str] = frozenset(),
) -> ApproverEvidence | NotAllowed:
    """On which grounds the verdict counts, and how many have to sign; or why it does not count, in a sentence.
    `editors` are the principals of those who have changed the arguments.

    Whoever asked may always turn their own request down: that is no more than stopping. Turning down takes nobody's
    four eyes, but it takes one who could be asked to sign.
    """
    own = member.author.principal == asker.principal
    if own and verdict is DecisionType.DENY:
        return ApproverEvidence(ASKER, terms.quorum)
    needed = f"It needs {signatories.needed(terms)}."
    evidence = _evidence(signatories, terms, asker, member)
    if not evidence:
        return NotAllowed(f"You may not sign this. {needed}")
    if terms.four_eyes and verdict is DecisionType.APPROVE:
        if own:
            return NotAllowed(f"{_ASKED} {needed}")
        if member.author.principal in editors:
            return NotAllowed(f"{_EDITED} {needed}")
    barred = frozenset({asker.principal, *editors}) if terms.four_eyes else frozenset()
    return ApproverEvidence(evidence, terms.quorum, terms.approvers, barred)


def _evidence(signatories: Approvers, terms: ApprovalRequirements, asker: Author, member: Member) -> str:
    """Which principal or role of each set of approvers this person is; empty if one of the sets has none."""
    # Whoever is a full member or an admin of another platform is nobody here. A program is wherever its token is for.
    here = member.author.platform == asker.platform or is_program(member)
    if not terms.approvers:
        return signatories.evidence(member) if here or member.author.principal == signatories.operator else ""
    if not here or member.guest or member.external:
        return ""
    found = [_entry(approvers, asker, member) for approvers in terms.approvers]
    return ", ".join(dict.fromkeys(found)) if all(found) else ""


def _entry(approvers: frozenset[str], asker: Author, member: Member) -> str:
    """The entry that this person is, the most personal first."""
    principal = member.author.principal
    if principal in approvers:
        return principal
    if roles := sorted(member.roles & approvers):
        return roles[0]
    if ASKER in approvers and principal == asker.principal:
        return ASKER
    return MEMBERS if MEMBERS in approvers and _is_member(member, asker) else ""


def _is_member(member: Member, asker: Author) -> bool:
    """Whether this is a full member of the asker's place. A program is one of no chat; among programs it is one whose
    token is for signing.
    """
    if is_program(member):
        return asker.platform == member.author.platform and ApiRole.APPROVER.principal in member.roles
    return True
