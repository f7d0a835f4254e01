"""Grants: the rights to give one, and their creation."""

from __future__ import annotations

import secrets

from bot.domain.approvals import Approval, ApproverEvidence
from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import (
    IDLE_SECONDS,
    LONGEST_HOURS,
    ArgumentsScope,
    Grant,
    GrantRequest,
    HoursScope,
    PermanentScope,
    Scope,
    ThreadScope,
    requirements_digest,
    scope_name,
)
from bot.domain.turns import ToolStep

_HOUR = 3600.0


def grant_rejection(request: GrantRequest, step: ToolStep, evidence: ApproverEvidence, *, admin: bool) -> str:
    """Return the reason why an approver may not give this grant, in a sentence; empty if they may."""
    if step.tool is None or step.approval is None:
        return "This call can be approved, but not granted. Ask for it again."
    if evidence.quorum > 1:
        return f"This needs {evidence.quorum} approvals each time. It can be approved, not granted."
    if not admin and (isinstance(request.scope, PermanentScope) or request.everyone or request.destructive):
        return "Only an admin can allow that."
    if step.tool.destructive and not request.destructive:
        return "It may be destructive, so each call needs its own approval, unless an admin grants it."
    if isinstance(request.scope, HoursScope) and not 0 < request.scope.hours <= LONGEST_HOURS:
        return f"That takes between one minute and {LONGEST_HOURS:.0f} hours."
    return ""


def build_grant(request: GrantRequest, step: ToolStep, conversation: ConversationKey, by: Author) -> Grant:
    """Return the grant for a request, given with the approval of this call."""
    tool, approval = step.tool, step.approval
    assert tool is not None
    assert approval is not None
    seconds = _seconds(request.scope)
    return Grant(
        id=secrets.token_hex(6),
        scope=scope_name(request.scope),
        server=tool.server_id,
        server_name=tool.server,
        tool=tool.name,
        definition=tool.definition,
        place=str(conversation) if _of_thread(request.scope) else conversation.workspace_key,
        person="" if request.everyone else approval.requested_for.principal,
        granted_by=by.principal,
        granted_name=by.name,
        approval_id=approval.id,
        rule=asking_rule(step),
        terms=requirements_digest(approval.terms),
        fingerprint=_argument_fingerprint(request.scope, approval),
        destructive=request.destructive,
        lasts=seconds,
        idle=_of_thread(request.scope),
    )


def asking_rule(step: ToolStep) -> str:
    """Return the rule that asked for the approval (`Ruling.asked_by`); empty if no rule was evaluated."""
    return step.ruling.asked_by if step.ruling is not None else ""


def _of_thread(scope: Scope) -> bool:
    return isinstance(scope, ThreadScope | ArgumentsScope)


def _argument_fingerprint(scope: Scope, approval: Approval) -> str:
    return approval.fingerprint if isinstance(scope, ArgumentsScope) else ""


def _seconds(scope: Scope) -> float | None:
    match scope:
        case ThreadScope() | ArgumentsScope():
            return IDLE_SECONDS
        case HoursScope(hours):
            return hours * _HOUR
        case PermanentScope():
            return None
