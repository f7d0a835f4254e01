"""Signing with a grant, in one transaction: the decision, the grant, and what of the turn waited for the same."""

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
    """Approve a call and keep a grant with it; other calls of the turn that it covers are approved with it, as far as
    whoever grants may sign them: `following` has the grounds. Nothing is granted by a decision that is not the one that
    counts. `key` is this decision's own.
    """
    settlement = approvals.decide(connection, decision, key, signing)
    if settlement != Decided(DecisionType.APPROVE) or not grant_rows.give(connection, grant):
        return settlement
    found = read_approval(connection, decision.approval_id)
    assert found is not None
    turn, _ = found
    followed = []
    for step in read_record(connection, turn.id).calls_awaiting_approval:
        wanted = grant_rows.wanted_of(step, turn.conversation)
        if wanted is None or step.approval is None or turn.question.again or not covers(grant, wanted):
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
