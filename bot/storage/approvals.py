"""Transactions that come from whoever signs: a decision, one signature of several, other arguments. Any process may run
them. Whether somebody may decide was found out before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import (
    NO_EVIDENCE,
    AlreadyDecided,
    ApprovalNotFound,
    ApproverEvidence,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    MoreApprovalsNeeded,
    Revision,
    StaleRevision,
    ViewRequired,
)
from bot.domain.turns import StepStatus
from bot.storage import approval_views, audit
from bot.storage.audit_calls import server_id_of
from bot.storage.clock import now
from bot.storage.codec import read_terms, secrets_body
from bot.storage.pg_notify import notify_turn
from bot.storage.tables import Json, approvals, decisions, steps
from bot.storage.turn_completion import lock_turn, mark_view_stale, requeue
from bot.storage.tx_metrics import note_approvals_ended
from bot.storage.upsert import Upsert

_Signers = Mapping[str, str]
"""People's names by their principals."""

_asked = (
    sa.select(
        approvals.c.turn_id,
        approvals.c.n,
        approvals.c.revision,
        approvals.c.decided_by,
        sa.func.coalesce(approvals.c.revised, approvals.c.proposed, type_=Json).label("asked"),
        approvals.c.fingerprint,
        approvals.c.terms,
        approvals.c.editors,
        approvals.c.signers,
        steps.c.status,
        (approvals.c.expires_at <= now()).label("overdue"),
    )
    .join(steps, sa.and_(steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n))
    .where(approvals.c.id == bindparam("approval_id"))
)
_settle_step = (
    steps.update()
    .where(steps.c.turn_id == bindparam("t"), steps.c.n == bindparam("i"), steps.c.status == StepStatus.AWAITING)
    .values(status=bindparam("to"))
)
_settle_approval = (
    approvals.update()
    .where(approvals.c.id == bindparam("a"))
    .values(decided_by=bindparam("by"), decided_at=now(), reason=bindparam("why"), signed=bindparam("what"))
)
_count = approvals.update().where(approvals.c.id == bindparam("a")).values(signers=bindparam("who", type_=Json))
# Whoever has signed and turns it down after all has changed their mind.
_add_decision = Upsert(
    lambda insert: (
        insert(decisions)
        .values(
            approval_id=bindparam("a"),
            revision=bindparam("r"),
            person=bindparam("p"),
            name=bindparam("name"),
            verdict=bindparam("verdict"),
            reason=bindparam("why"),
            key=bindparam("key"),
            evidence=bindparam("evidence"),
            at=now(),
        )
        .on_conflict_do_update(
            index_elements=["approval_id", "revision", "person"],
            set_={
                "verdict": bindparam("verdict"),
                "reason": bindparam("why"),
                "key": bindparam("key"),
                "evidence": bindparam("evidence"),
                "at": now(),
            },
        )
    )
)
_decided = sa.select(decisions.c.verdict, decisions.c.approval_id).where(decisions.c.key == bindparam("key"))
_signed = sa.select(decisions.c.person, decisions.c.name, decisions.c.evidence).where(
    decisions.c.approval_id == bindparam("a"),
    decisions.c.revision == bindparam("r"),
    decisions.c.verdict == DecisionType.APPROVE.value,
)
_take_back = decisions.delete().where(
    decisions.c.approval_id == bindparam("a"),
    decisions.c.revision == bindparam("r"),
    decisions.c.person == bindparam("p"),
)
_revise = (
    approvals.update()
    .where(approvals.c.id == bindparam("a"), approvals.c.revision == bindparam("was"))
    .values(
        revision=approvals.c.revision + 1,
        revised=bindparam("what"),
        revised_by=bindparam("by"),
        editors=bindparam("editors", type_=Json),
        # Nobody has signed what it would do now.
        signers=sa.null(),
        fingerprint=bindparam("print"),
        revised_secrets=bindparam("secrets", type_=Json),
    )
)


def decide(
    connection: sa.Connection, decision: Decision, key: str, signing: ApproverEvidence = NO_EVIDENCE
) -> DecisionResult:
    """Settle an approval if it still waits and the decision is about what it asks now; or count one signature of
    several. `key` is this decision's own: run a second time, it is still the one that counts.
    """
    made = connection.execute(_decided, {"key": key}).first()
    if made is not None:
        return _made_before(connection, made.approval_id, DecisionType(made.verdict), signing)
    asked = connection.execute(_asked, {"approval_id": decision.approval_id}).first()
    if asked is None:
        return ApprovalNotFound()
    lock_turn(connection, asked.turn_id)
    # Read again under the lock: somebody may have been faster.
    asked = connection.execute(_asked, {"approval_id": decision.approval_id}).first()
    objection = _objection(asked, decision)
    if asked is None or objection is not None:
        return objection or ApprovalNotFound()
    approved = decision.verdict is DecisionType.APPROVE
    if approved and signing.must_view and not approval_views.has_viewed(connection, decision):
        return ViewRequired()
    this = {"a": decision.approval_id, "r": decision.revision}
    standing, fallen = _signers(connection, asked, decision, signing)
    missing = _missing(asked, len(standing), signing)
    if approved and decision.by.principal in standing:
        return AlreadyDecided(f"You have signed it already. It needs {_more(missing)}.")
    if approved:
        for person in fallen:
            connection.execute(_take_back, {**this, "p": person})
    connection.execute(
        _add_decision.on(connection),
        {
            **this,
            "p": decision.by.principal,
            "name": decision.by.name,
            "verdict": decision.verdict.value,
            "why": decision.reason,
            "key": key,
            "evidence": signing.evidence,
        },
    )
    signers = [*standing.values(), decision.by.name] if approved else []
    if approved:
        connection.execute(_count, {"a": decision.approval_id, "who": signers})
    counts = not approved or missing <= 1
    if counts:
        _settle(connection, asked, decision, " and ".join(signers))
    mark_view_stale(connection, asked.turn_id)
    facts: dict[str, Any] = {"no_longer_count": sorted(fallen)} if approved and fallen else {}
    audit.record(
        connection,
        "decided" if counts else "signed",
        decision.by.principal,
        turn_id=asked.turn_id,
        subject=server_id_of(connection, decision.approval_id),
        step=asked.n,
        approval=decision.approval_id,
        revision=decision.revision,
        verdict=decision.verdict.value,
        evidence=signing.evidence,
        needed=0 if counts else missing - 1,
        fingerprint=asked.fingerprint,
        **facts,
    )
    notify_turn(connection, asked.turn_id)
    return Decided(decision.verdict) if counts else MoreApprovalsNeeded(missing - 1)


def _made_before(
    connection: sa.Connection, approval_id: str, verdict: DecisionType, signing: ApproverEvidence
) -> DecisionResult:
    """What a decision has come to whose COMMIT's answer was lost."""
    asked = connection.execute(_asked, {"approval_id": approval_id}).one()
    waits = asked.status == StepStatus.AWAITING
    return MoreApprovalsNeeded(_missing(asked, len(asked.signers or ()), signing)) if waits else Decided(verdict)


def _settle(connection: sa.Connection, asked: Any, decision: Decision, signers: str) -> None:
    approved = decision.verdict is DecisionType.APPROVE
    connection.execute(
        _settle_step,
        {"t": asked.turn_id, "i": asked.n, "to": StepStatus.READY if approved else StepStatus.DENIED},
    )
    connection.execute(
        _settle_approval,
        {
            "a": decision.approval_id,
            "by": signers or decision.by.name,
            "why": decision.reason,
            "what": asked.asked if approved else None,
        },
    )
    requeue(connection, asked.turn_id)
    note_approvals_ended(connection, asked.turn_id, [asked.n], "approved" if approved else "denied")


def _signers(
    connection: sa.Connection, asked: Any, decision: Decision, signing: ApproverEvidence
) -> tuple[_Signers, _Signers]:
    """Those who have signed and whose signatures still count, by their principals and in their order; and those whose
    signatures do not count any more, since a rule has become stricter. They may sign anew, if it is for them to.
    """
    order = {name: place for place, name in enumerate(asked.signers or ())}
    rows = connection.execute(_signed, {"a": decision.approval_id, "r": decision.revision}).all()
    standing: dict[str, str] = {}
    fallen: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: order.get(row.name, 0)):
        (standing if signing.accepts(row.person, row.evidence) else fallen)[row.person] = row.name
    return standing, fallen


def _missing(asked: Any, signers: int, signing: ApproverEvidence) -> int:
    """How many have still to sign: what was asked for counts as well as what is asked for now."""
    quorum: int = max(signing.quorum, read_terms(asked.terms).quorum)
    return quorum - signers


def _more(count: int) -> str:
    return "1 more signature" if count == 1 else f"{max(count, 0)} more signatures"


def revise(connection: sa.Connection, revision: Revision) -> bool:
    """Ask for a signature on other arguments. False if the approval is settled or was revised by somebody else."""
    asked = connection.execute(_asked, {"approval_id": revision.approval_id}).first()
    if asked is None:
        return False
    lock_turn(connection, asked.turn_id)
    asked = connection.execute(_asked, {"approval_id": revision.approval_id}).first()
    if asked is None:
        return False
    if asked.revision == revision.of + 1 and asked.fingerprint == revision.fingerprint:
        return True
    if asked.status != StepStatus.AWAITING or asked.revision != revision.of or asked.overdue:
        return False
    connection.execute(
        _revise,
        {
            "a": revision.approval_id,
            "was": revision.of,
            "what": dict(revision.arguments),
            "by": revision.by.name,
            "editors": sorted({*(asked.editors or ()), revision.by.principal}),
            "print": revision.fingerprint,
            "secrets": secrets_body(revision.secrets),
        },
    )
    mark_view_stale(connection, asked.turn_id)
    audit.record(
        connection,
        "revised",
        revision.by.principal,
        turn_id=asked.turn_id,
        subject=server_id_of(connection, revision.approval_id),
        step=asked.n,
        approval=revision.approval_id,
        revision=revision.of + 1,
        fingerprint=revision.fingerprint,
    )
    notify_turn(connection, asked.turn_id)
    return True


def _objection(asked: Any, decision: Decision) -> DecisionResult | None:
    """Why this decision settles nothing."""
    if asked is None:
        return ApprovalNotFound()
    if asked.status != StepStatus.AWAITING:
        return AlreadyDecided(_how(StepStatus(asked.status), asked.decided_by))
    if asked.revision != decision.revision:
        return StaleRevision()
    return AlreadyDecided(_how(StepStatus.EXPIRED, "")) if asked.overdue else None


def _how(status: StepStatus, by: str) -> str:
    match status:
        case StepStatus.DENIED:
            return f"{by} has turned it down already." if by else "It could not be shown before that. It was not run."
        case StepStatus.EXPIRED:
            return "It timed out before that. It was not run."
        case StepStatus.CANCELLED:
            return "It was cancelled before that. It was not run."
        case _:
            return f"{by} has approved it already." if by else "It was settled before that."
