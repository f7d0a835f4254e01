"""Whether somebody's signature on a call would count: asked by whatever shows people what waits for them.

It is a look and no right: the engine asks again when somebody signs, and knows more then.
"""

from __future__ import annotations

from bot.domain.approvals import ApproverEvidence, DecisionType
from bot.domain.conversations import Member
from bot.engine.approver_check import check_approver
from bot.engine.rules import RuleBook
from bot.ports import PendingApproval


def can_approve(rules: RuleBook, member: Member, call: PendingApproval) -> bool:
    """Whether this person may sign this call, on the terms it was asked on."""
    signatories = rules.rules(call.conversation).signatories
    found = check_approver(
        signatories, call.terms, member, DecisionType.APPROVE, asker=call.asked_by, editors=call.editors
    )
    return isinstance(found, ApproverEvidence)
