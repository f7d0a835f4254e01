"""Approvals: decisions, grants, edits of arguments, viewed pages and reminders. Any process may run these transactions.
The caller has checked that the user may decide.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import (
    NO_EVIDENCE,
    NOBODY_ELSE,
    AlreadyDecided,
    ApprovalNotFound,
    ApprovalNotice,
    ApprovalRequirements,
    ApprovedTogether,
    ApproverEvidence,
    Decided,
    Decision,
    DecisionResult,
    DecisionType,
    MoreApprovalsNeeded,
    Portion,
    Revision,
    StaleRevision,
    ViewRequired,
    right_holder,
)
from bot.domain.conversations import Author
from bot.domain.grants import Grant, covers
from bot.domain.turns import StepStatus, ToolStep, Turn, WakeupKind
from bot.storage import audit
from bot.storage.admin.grants import add_grant, call_to_cover, read_delegations
from bot.storage.audit import record_refused, server_id_of
from bot.storage.codec import converter, decode, encode
from bot.storage.database import Store, insert_or_update, matching, now, row_values, send_wakeup, transaction
from bot.storage.tables import (
    Json,
    approval_of_step,
    approval_views,
    approvals,
    decisions,
    steps,
    this_approval,
    this_step,
    turns,
)
from bot.storage.turn_log.records import read_approval, read_record
from bot.storage.turn_log.states import lock_turn, mark_view_stale, note_approvals_ended, requeue

_this_view = matching(approval_views, approval_id="a", revision="r", principal="p")
_select_view = sa.select(approval_views.c.pages, approval_views.c.viewed).where(_this_view)
_add_view = approval_views.insert().values(at=now())
_update_view = (
    approval_views.update().where(_this_view).values(pages=bindparam("to_pages"), viewed=bindparam("to_viewed"))
)


_Approvers = Mapping[str, str]
"""Names by principal."""

_asked = (
    sa.select(
        *approvals.c["id", "turn_id", "n", "revision", "fingerprint", "requirements", "decided_by"],
        *approvals.c["possible_approvers", "notify_privately", "editors", "approver_names"],
        sa.func.coalesce(approvals.c.revised_arguments, approvals.c.proposed_arguments, type_=Json).label("asked"),
        steps.c.status,
        (approvals.c.expires_at <= now()).label("overdue"),
    )
    .join(steps, approval_of_step)
    .where(this_approval)
)
_settle_step = steps.update().where(this_step, steps.c.status == StepStatus.AWAITING).values(status=bindparam("to"))
_settle_approval = (
    approvals.update()
    .where(this_approval)
    .values(decided_by=bindparam("by"), decided_at=now(), reason=bindparam("why"), approved_arguments=bindparam("what"))
)
_count = approvals.update().where(this_approval).values(approver_names=bindparam("who", type_=Json))
# A later denial by the same approver replaces the approval.
_add_decision = insert_or_update(decisions, "decision", "reason", "key", "evidence", at=now())
_decided = sa.select(decisions.c.decision, decisions.c.approval_id).where(matching(decisions, key="key"))
_signed = sa.select(decisions.c.principal, decisions.c.name, decisions.c.evidence).where(
    matching(decisions, approval_id="a", revision="r"), decisions.c.decision == DecisionType.APPROVE.value
)
_remove_decision = decisions.delete().where(matching(decisions, approval_id="a", revision="r", principal="p"))
_revise = (
    approvals.update()
    .where(this_approval, approvals.c.revision == bindparam("was"))
    .values(
        revision=approvals.c.revision + 1,
        revised_arguments=bindparam("what"),
        revised_by=bindparam("by"),
        editors=bindparam("editors", type_=Json),
        # No approval holds for the new arguments.
        approver_names=sa.null(),
        fingerprint=bindparam("print"),
        revised_secrets=bindparam("secrets"),
        requirements=bindparam("requirements"),
        possible_approvers=bindparam("possible"),
        notify_privately=bindparam("notify"),
    )
)


_awaiting = (
    sa.select(approvals.c.id, turns.c.conversation)
    .join(steps, approval_of_step)
    .join(turns, turns.c.id == approvals.c.turn_id)
    .where(
        sa.or_(approvals.c.expires_at.is_(None), approvals.c.expires_at > now()), steps.c.status == StepStatus.AWAITING
    )
    .order_by(approvals.c.posted_at)
)
_due_reminders = _awaiting.where(
    approvals.c.remind_in.is_not(None),
    approvals.c.reminded_at.is_(None),
    approvals.c.posted_at + approvals.c.remind_in <= now(),
)
_due_notices = _awaiting.where(
    approvals.c.notify_privately, approvals.c.notified_at.is_(None), approvals.c.posted_at.is_not(None)
)
# The update decides between concurrent processes.
_claim_reminder, _claim_notice = (
    approvals.update().where(this_approval, claimed_at.is_(None)).values({claimed_at: now()}).returning(approvals.c.id)
    for claimed_at in (approvals.c.reminded_at, approvals.c.notified_at)
)
_remind_again = approvals.update().where(this_approval).values(remind_in=bindparam("later"), reminded_at=sa.null())


class SqlApprovalLog(Store):
    """Decisions on approvals; see `bot.ports.ApprovalLog`. Part of `SqlTurnLog`."""

    async def decide(self, decision: Decision, signing: ApproverEvidence = NO_EVIDENCE) -> DecisionResult:
        """Settle an approval that is still awaiting and unchanged, or count one approver of several."""
        key = uuid.uuid4().hex
        return await self._database.run(lambda connection: _record_decision(connection, decision, key, signing))

    async def grant(
        self,
        decision: Decision,
        grant: Grant,
        signing: ApproverEvidence = NO_EVIDENCE,
        following: ApprovedTogether = NOBODY_ELSE,
    ) -> DecisionResult:
        """Approve a call and add a grant. Other calls of the turn that the grant covers are approved with it, as far as
        the approver may decide them: `following` has the grounds. A rejected decision adds no grant.
        """
        key = uuid.uuid4().hex

        def decide_and_grant(connection: sa.Connection) -> DecisionResult:
            result = _record_decision(connection, decision, key, signing)
            if result == Decided(DecisionType.APPROVE) and add_grant(connection, grant):
                _approve_covered(connection, decision, grant, key, following)
            return result

        return await self._database.run(decide_and_grant)

    @transaction
    def revise(self, connection: sa.Connection, revision: Revision) -> bool:
        """Replace the arguments of a waiting approval. Return False if it is settled, overdue or was edited by another
        user.
        """
        row = _lock_asked(connection, revision.approval_id)
        if row is None:
            return False
        if row.revision == revision.of + 1 and row.fingerprint == revision.fingerprint:
            return True
        if row.status != StepStatus.AWAITING or row.revision != revision.of or row.overdue:
            return False
        approvers = {
            "requirements": row.requirements,
            "possible": row.possible_approvers,
            "notify": row.notify_privately,
        }
        if revision.requirements is not None and revision.possible_approvers is not None:
            possible = revision.possible_approvers
            notify = bool(possible.with_notice(ApprovalNotice.PRIVATE))
            approvers = {"requirements": encode(revision.requirements), "possible": encode(possible), "notify": notify}
        connection.execute(
            _revise,
            {
                "a": revision.approval_id,
                "was": revision.of,
                "what": dict(revision.arguments),
                "by": revision.by.name,
                "editors": sorted({*(row.editors or ()), revision.by.principal}),
                "print": revision.fingerprint,
                "secrets": converter.unstructure(revision.secrets),
                **approvers,
            },
        )
        mark_view_stale(connection, row.turn_id)
        changed = {"revision": revision.of + 1, "fingerprint": revision.fingerprint}
        _record(connection, "revised", revision.by.principal, row, **changed)
        send_wakeup(connection, WakeupKind.APPROVAL_DECIDED, row.turn_id)
        return True

    @transaction
    def record_view(
        self, connection: sa.Connection, approval_id: str, revision: int, portion: Portion, by: Author
    ) -> bool:
        """Record that a user opened a page of a whole call; the first page also goes to the audit. Pages count only in
        their order. Return False if the call is not awaiting approval at this revision.
        """
        row = _lock_asked(connection, approval_id)
        if row is None or row.status != StepStatus.AWAITING or row.revision != revision:
            return False
        key = {"a": approval_id, "r": revision, "p": by.principal}
        view = connection.execute(_select_view, key).first()
        # Another release may split the call into other pages; counting restarts then.
        before = view.viewed if view is not None and view.pages == portion.of else 0
        viewed = portion.number if portion.number == before + 1 else before
        if view is None:
            place = {"approval_id": approval_id, "revision": revision, "principal": by.principal}
            connection.execute(_add_view, {**place, "pages": portion.of, "viewed": viewed})
            _record(connection, "opened", by.principal, row, revision=revision, fingerprint=row.fingerprint)
        elif portion.number and (view.pages, view.viewed) != (portion.of, viewed):
            connection.execute(_update_view, {**key, "to_pages": portion.of, "to_viewed": viewed})
        return True

    @transaction
    def record_rejection(self, connection: sa.Connection, approval_id: str, by: Author, reason: str) -> None:
        """Record a decision by a user who may not decide."""
        record_refused(connection, approval_id, by, reason)

    @transaction
    def take_reminders(
        self, connection: sa.Connection, reaches: Sequence[str], limit: int
    ) -> Sequence[tuple[Turn, ToolStep]]:
        """Claim the calls that are due for a reminder, in conversations with one of the prefixes `reaches`.
        Each call is claimed by one process only.
        """
        claimed = _claim_due(connection, _due_reminders, _claim_reminder, reaches, limit)
        for _turn, step in claimed:
            later = step.approval.requirements.escalate if step.approval is not None else None
            if step.approval is not None and later is not None and (step.approval.remind_in or 0.0) < later.after:
                connection.execute(_remind_again, {"a": step.approval.id, "later": later.after})
        return claimed

    @transaction
    def take_private_notices(
        self, connection: sa.Connection, reaches: Sequence[str], limit: int
    ) -> Sequence[tuple[Turn, ToolStep]]:
        """Claim the posted calls whose approvers are to be notified in private, by the same rule."""
        return _claim_due(connection, _due_notices, _claim_notice, reaches, limit)

    @transaction
    def delegations(self, connection: sa.Connection, workspace: str) -> Sequence[Grant]:
        """Return the active delegations of a workspace, newest first."""
        return read_delegations(connection, workspace)

    @transaction
    def get_approval(self, connection: sa.Connection, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """Return the turn and the step of an approval."""
        return read_approval(connection, approval_id)


def _claim_due(
    connection: sa.Connection, due: sa.Select[Any], claim: sa.UpdateBase, reaches: Sequence[str], limit: int
) -> Sequence[tuple[Turn, ToolStep]]:
    ids = [row.id for row in connection.execute(due) if f"{row.conversation}:".startswith(tuple(reaches))]
    # Sorted, because two transactions that claim the same rows could deadlock.
    claimed = [
        approval_id
        for approval_id in sorted(ids[:limit])
        if connection.execute(claim, {"a": approval_id}).first() is not None
    ]
    return [call for approval_id in claimed if (call := read_approval(connection, approval_id)) is not None]


def _lock_asked(connection: sa.Connection, approval_id: str) -> Any:
    """Lock the turn of an approval, and return its row as it is then, `None` if it is gone."""
    row = connection.execute(_asked, {"a": approval_id}).first()
    if row is None:
        return None
    lock_turn(connection, row.turn_id)
    # Re-read under the lock: another decision or edit may have been faster.
    return connection.execute(_asked, {"a": approval_id}).first()


def _record(connection: sa.Connection, kind: str, actor: str, approval: Any, **facts: Any) -> None:
    """Add a row about an approval to the audit."""
    where = {"turn_id": approval.turn_id, "subject": server_id_of(connection, approval.id)}
    audit.record(connection, kind, actor, **where, step=approval.n, approval=approval.id, **facts)


def _approve_covered(
    connection: sa.Connection, decision: Decision, grant: Grant, key: str, following: ApprovedTogether
) -> None:
    """Approve the other calls of the turn that a new grant covers, as far as `following` has the grounds."""
    turn_and_step = read_approval(connection, decision.approval_id)
    assert turn_and_step is not None
    turn, _ = turn_and_step
    also_approved = []
    for step in read_record(connection, turn.id).calls_awaiting_approval:
        request = call_to_cover(step, turn.conversation)
        if request is None or step.approval is None or turn.question.again or not covers(grant, request):
            continue
        grounds = following.get((step.approval.id, step.approval.revision))
        if grounds is None:
            continue
        same = dataclasses.replace(decision, approval_id=step.approval.id, revision=step.approval.revision)
        if isinstance(_record_decision(connection, same, f"{key}:{step.n}", grounds), Decided):
            also_approved.append(step.approval.id)
    facts: dict[str, Any] = {
        **{name: getattr(grant, name) for name in ("scope", "tool", "place", "fingerprint", "destructive")},
        "grant": grant.id,
        "approval": grant.approval_id,
        "server": grant.server_name,
        "person": grant.person or "everyone",
        "seconds": grant.lasts,
        "followed": also_approved,
    }
    audit.record(connection, "granted", decision.by.principal, turn_id=turn.id, subject=grant.server, **facts)


def _record_decision(
    connection: sa.Connection, decision: Decision, key: str, signing: ApproverEvidence
) -> DecisionResult:
    """Settle an approval that is still awaiting and unchanged, or count one approver of several. `key` is unique to
    this decision: a second run with it returns the same result.
    """
    recorded = connection.execute(_decided, {"key": key}).first()
    if recorded is not None:
        asked = connection.execute(_asked, {"a": recorded.approval_id}).one()
        if asked.status == StepStatus.AWAITING:
            return MoreApprovalsNeeded(_missing(asked, len(asked.approver_names or ()), signing))
        return Decided(DecisionType(recorded.decision))
    row = _lock_asked(connection, decision.approval_id)
    rejection = _rejection(connection, row, decision, signing)
    if rejection is not None:
        return rejection
    approved = decision.type is DecisionType.APPROVE
    position = {"a": decision.approval_id, "r": decision.revision}
    principal, name, evidence = decision.by.principal, decision.by.name, signing.evidence
    if decision.is_automatic:
        principal, name, evidence = audit.NOBODY, "", ""
    counted, outdated, used = _counted_approvers(connection, row, decision, signing)
    missing = _missing(row, len(counted), signing)
    if approved and used & {principal, right_holder(principal, evidence)}:
        more = "1 more approval" if missing == 1 else f"{max(missing, 0)} more approvals"
        return AlreadyDecided(f"You have already approved it. It needs {more}.")
    if approved:
        for person in outdated:
            connection.execute(_remove_decision, {**position, "p": person})
    signed = {"principal": principal, "name": name, "decision": decision.type.value, "key": key, "evidence": evidence}
    connection.execute(_add_decision.on(connection), row_values(decisions, decision, **signed))
    names = [*counted.values(), decision.by.name] if approved else []
    if approved:
        connection.execute(_count, {"a": decision.approval_id, "who": names})
    counts = not approved or missing <= 1
    if counts:
        status = StepStatus.READY if approved else StepStatus.DENIED
        connection.execute(_settle_step, {"t": row.turn_id, "i": row.n, "to": status})
        settled = {"by": " and ".join(names) or name, "why": decision.reason, "what": row.asked if approved else None}
        connection.execute(_settle_approval, {"a": decision.approval_id, **settled})
        requeue(connection, row.turn_id)
        note_approvals_ended(connection, row.turn_id, [row.n], "approved" if approved else "denied")
    mark_view_stale(connection, row.turn_id)
    facts: dict[str, Any] = {"no_longer_count": sorted(outdated)} if approved and outdated else {}
    facts |= {"reason": decision.reason} if decision.is_automatic else {}
    _record(
        connection,
        "decided" if counts else "signed",
        principal,
        row,
        revision=decision.revision,
        verdict=decision.type.value,
        evidence=evidence,
        needed=0 if counts else missing - 1,
        fingerprint=row.fingerprint,
        **facts,
    )
    send_wakeup(connection, WakeupKind.APPROVAL_DECIDED, row.turn_id)
    return Decided(decision.type) if counts else MoreApprovalsNeeded(missing - 1)


def _counted_approvers(
    connection: sa.Connection, approval: Any, decision: Decision, signing: ApproverEvidence
) -> tuple[_Approvers, _Approvers, set[str]]:
    """Return the approvers that count, in their order, and those that no longer count because a rule has become
    stricter. The latter may approve again if the rule permits it. The principals are of those that count, and of those
    whose rights they have used: a right counts once.
    """
    order = {name: position for position, name in enumerate(approval.approver_names or ())}
    rows = connection.execute(_signed, {"a": decision.approval_id, "r": decision.revision}).all()
    counted: dict[str, str] = {}
    outdated: dict[str, str] = {}
    used: set[str] = set()
    for row in sorted(rows, key=lambda row: order.get(row.name, 0)):
        accepted = signing.accepts(row.principal, row.evidence)
        (counted if accepted else outdated)[row.principal] = row.name
        used |= {row.principal, right_holder(row.principal, row.evidence)} if accepted else set()
    return counted, outdated, used


def _missing(row: Any, approvals: int, signing: ApproverEvidence) -> int:
    quorum: int = max(signing.quorum, decode(ApprovalRequirements, row.requirements).quorum)
    return quorum - approvals


def _rejection(
    connection: sa.Connection, row: Any, decision: Decision, signing: ApproverEvidence
) -> DecisionResult | None:
    """Return the reason why this decision is not accepted, `None` if it is."""
    if row is None:
        return ApprovalNotFound()
    if row.status != StepStatus.AWAITING:
        return AlreadyDecided(_settled_text(StepStatus(row.status), row.decided_by))
    if row.revision != decision.revision:
        return StaleRevision()
    if row.overdue:
        return AlreadyDecided(_settled_text(StepStatus.EXPIRED, ""))
    if decision.type is DecisionType.DENY or not signing.must_view:
        return None
    key = {"a": decision.approval_id, "r": decision.revision, "p": decision.by.principal}
    view = connection.execute(_select_view, key).first()
    return ViewRequired() if view is None or view.viewed < view.pages else None


def _settled_text(status: StepStatus, by: str) -> str:
    match status:
        case StepStatus.DENIED:
            return f"{by} has already denied it." if by else "Nobody could be asked to approve it. It was not run."
        case StepStatus.EXPIRED:
            return "Its approval had expired. It was not run."
        case StepStatus.CANCELLED:
            return "It was already cancelled. It was not run."
        case _:
            return f"{by} has already approved it." if by else "It was already decided."
