"""Who may grant what: the sentence against a permission, and the grant that follows from one."""

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


def grant_rejection(permission: GrantRequest, step: ToolStep, signing: ApproverEvidence, *, admin: bool) -> str:
    """Why whoever may sign this call, on these grounds, may not grant that, in a sentence; empty if nothing is against
    it.
    """
    if step.tool is None or step.approval is None:
        return "This call can be signed, but nothing can be granted with it. Ask for it once more."
    if signing.quorum > 1:
        return f"This takes {signing.quorum} signatures each time. It can be signed, not granted."
    if not admin and (isinstance(permission.scope, PermanentScope) or permission.everyone or permission.destructive):
        return "Only an admin can allow that."
    if step.tool.destructive and not permission.destructive:
        return "It may destroy something, so each call is signed for itself, unless an admin says otherwise."
    if isinstance(permission.scope, HoursScope) and not 0 < permission.scope.hours <= LONGEST_HOURS:
        return f"That takes between one minute and {LONGEST_HOURS:.0f} hours."
    return ""


def build_grant(permission: GrantRequest, step: ToolStep, conversation: ConversationKey, by: Author) -> Grant:
    """The grant that a permission comes to, given with the signature of this call."""
    tool, approval = step.tool, step.approval
    assert tool is not None
    assert approval is not None
    lasts = _lasts(permission.scope)
    return Grant(
        id=secrets.token_hex(6),
        scope=scope_name(permission.scope),
        server=tool.server_id,
        server_name=tool.server,
        tool=tool.name,
        definition=tool.definition,
        place=str(conversation) if _of_thread(permission.scope) else conversation.workspace_key,
        person="" if permission.everyone else approval.requested_for.principal,
        granted_by=by.principal,
        granted_name=by.name,
        approval_id=approval.id,
        rule=asking_rule(step),
        terms=requirements_digest(approval.terms),
        fingerprint=_bound_to(permission.scope, approval),
        destructive=permission.destructive,
        lasts=lasts,
        idle=_of_thread(permission.scope),
    )


def asking_rule(step: ToolStep) -> str:
    """The rule that asks for the signature (`Ruling.asked_by`), empty for a call that no rule was asked about."""
    return step.ruling.asked_by if step.ruling is not None else ""


def _of_thread(scope: Scope) -> bool:
    return isinstance(scope, ThreadScope | ArgumentsScope)


def _bound_to(scope: Scope, approval: Approval) -> str:
    return approval.fingerprint if isinstance(scope, ArgumentsScope) else ""


def _lasts(scope: Scope) -> float | None:
    match scope:
        case ThreadScope() | ArgumentsScope():
            return IDLE_SECONDS
        case HoursScope(hours):
            return hours * _HOUR
        case PermanentScope():
            return None
