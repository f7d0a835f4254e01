"""Approver check for displays.

It is a preview and grants nothing: the engine checks again when a decision arrives.
"""

from __future__ import annotations

from bot.domain.approvals import ApproverEvidence, DecisionType
from bot.domain.conversations import Member
from bot.engine.approver_check import check_approver
from bot.engine.rules import RuleBook
from bot.ports import PendingApproval


def can_approve(rules: RuleBook, member: Member, call: PendingApproval) -> bool:
    """Return True if this member may approve this call under its stored requirements."""
    signatories = rules.rules(call.conversation).signatories
    found = check_approver(
        signatories, call.terms, member, DecisionType.APPROVE, asker=call.asked_by, editors=call.editors
    )
    return isinstance(found, ApproverEvidence)
