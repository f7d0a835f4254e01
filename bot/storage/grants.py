"""Approval with a grant, in one transaction: the decision, the grant, and other waiting calls of the turn."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa

from bot.domain.approvals import (
    NO_EVIDENCE,
    NOBODY_ELSE,
    ApprovedTogether,
    ApproverEvidence,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
)
from bot.domain.grants import Grant, covers
from bot.storage import approvals, audit, grant_rows
from bot.storage.turn_reader import read_approval, read_record


def approve_with_grant(
    connection: sa.Connection,
    decision: Decision,
    grant: Grant,
    key: str,
    signing: ApproverEvidence = NO_EVIDENCE,
    *,
    following: ApprovedTogether = NOBODY_ELSE,
) -> DecisionResult:
    """Approve a call and add a grant. Other calls of the turn that the grant covers are approved with it, as far as the
    approver may decide them: `following` has the grounds. A rejected decision adds no grant. `key` is unique to this
    decision.
    """
    settlement = approvals.decide(connection, decision, key, signing)
    if settlement != Decided(DecisionType.APPROVE) or not grant_rows.give(connection, grant):
        return settlement
    turn_and_step = read_approval(connection, decision.approval_id)
    assert turn_and_step is not None
    turn, _ = turn_and_step
    followed = []
    for step in read_record(connection, turn.id).calls_awaiting_approval:
        request = grant_rows.wanted_of(step, turn.conversation)
        if request is None or step.approval is None or turn.question.again or not covers(grant, request):
            continue
        grounds = following.get((step.approval.id, step.approval.revision))
        if grounds is None:
            continue
        same = dataclasses.replace(decision, approval_id=step.approval.id, revision=step.approval.revision)
        if isinstance(approvals.decide(connection, same, f"{key}:{step.n}", grounds), Decided):
            followed.append(step.approval.id)
    audit.record(
        connection,
        "granted",
        decision.by.principal,
        turn_id=turn.id,
        subject=grant.server,
        grant=grant.id,
        approval=grant.approval_id,
        scope=grant.scope,
        server=grant.server_name,
        tool=grant.tool,
        place=grant.place,
        person=grant.person or "everyone",
        fingerprint=grant.fingerprint,
        destructive=grant.destructive,
        seconds=grant.lasts,
        followed=followed,
    )
    return settlement
