"""Transactions of a turn's owner: replies, calls, parking and ending.

Each proves ownership first. Each is safe to run twice, because the outcome of a COMMIT with a lost response is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.history import History, HistorySummary
from bot.domain.messages import ToolResult
from bot.domain.turns import WAITING, Claim, ModelStep, Step, StepStatus, ToolStep, TurnRecord, TurnStatus
from bot.domain.usage import PricedUsage
from bot.errors import LostLease, TurnInterrupted
from bot.storage import audit, elicitation_rows, files, record_cache, summaries, usage
from bot.storage.audit_calls import record_finished, record_new, record_sent
from bot.storage.claims import own, own_to_the_end, release, settle_leftovers
from bot.storage.clock import now
from bot.storage.codec import converter, encode
from bot.storage.grants import use_grants
from bot.storage.pg_notify import notify_all
from bot.storage.tables import approvals, deliveries, steps, turns
from bot.storage.turn_completion import (
    end_settled,
    end_turn,
    expire_overdue,
    mark_queued_views_stale,
    mark_view_stale,
    record_expired,
)
from bot.storage.turn_reader import read_record
from bot.storage.upsert import Upsert

_add_step = Upsert(
    lambda insert: (
        insert(steps)
        .values(
            turn_id=bindparam("turn_id"),
            n=bindparam("n"),
            kind=bindparam("kind"),
            status=bindparam("status"),
            repeatable=bindparam("repeatable"),
            body=bindparam("body"),
            result=bindparam("result"),
            created_at=now(),
        )
        .on_conflict_do_nothing()
    )
)
_add_approval = Upsert(
    lambda insert: (
        insert(approvals)
        .values(
            id=bindparam("id"),
            turn_id=bindparam("turn_id"),
            n=bindparam("n"),
            revision=bindparam("revision"),
            fingerprint=bindparam("fingerprint"),
            proposed_arguments=bindparam("proposed_arguments"),
            requested_for_id=bindparam("requested_for_id"),
            requested_for_name=bindparam("requested_for_name"),
            expires_in=bindparam("expires_in"),
            requirements=bindparam("requirements"),
            remind_in=bindparam("remind_in"),
            proposed_secrets=bindparam("proposed_secrets"),
            view_revision=sa.select(deliveries.c.revision + 1)
            .where(deliveries.c.turn_id == bindparam("turn_id"))
            .scalar_subquery(),
        )
        .on_conflict_do_nothing()
        .returning(approvals.c.id)
    )
)
_begin = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.n == bindparam("i"),
        sa.or_(
            steps.c.status == StepStatus.READY,
            sa.and_(steps.c.status == StepStatus.STARTED, steps.c.fence == bindparam("f")),
        ),
    )
    .values(status=StepStatus.STARTED, fence=bindparam("f"), started_at=now())
    .returning(steps.c.status)
)
_end = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.n == bindparam("i"),
        steps.c.status.in_([StepStatus.READY, StepStatus.STARTED]),
    )
    .values(status=bindparam("to"), result=bindparam("what"), ended_at=now())
    .returning(steps.c.n)
)
_keep_late_result = (
    steps.update()
    .where(steps.c.turn_id == bindparam("t"), steps.c.n == bindparam("i"), steps.c.fence == bindparam("f"))
    .values(late_result=bindparam("what"))
)
_wake_at = sa.select(sa.func.min(approvals.c.expires_at)).where(
    approvals.c.turn_id == bindparam("t"),
    sa.exists().where(
        steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n, steps.c.status == StepStatus.AWAITING
    ),
)
_park = (
    turns.update()
    .where(turns.c.id == bindparam("t"))
    .values(status=TurnStatus.WAITING, owner=None, lease_until=None, wake_at=bindparam("at"))
)


_parked = sa.select(turns.c.id).where(
    turns.c.id == bindparam("t"), turns.c.fence == bindparam("f"), turns.c.status == TurnStatus.WAITING
)
_finished = sa.select(turns.c.id).where(
    turns.c.id == bindparam("t"),
    turns.c.fence == bindparam("f"),
    turns.c.status.in_([TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED]),
)


def resume(connection: sa.Connection, claim: Claim) -> TurnRecord:
    """Settle leftovers of the previous owner and return the turn's record. Raises LostLease and Stopped."""
    own(connection, claim)
    settle_leftovers(connection, claim)
    return read_record(connection, claim.turn_id)


def append(
    connection: sa.Connection,
    claim: Claim,
    reply: ModelStep | None,
    calls: Sequence[ToolStep],
    *,
    record: TurnRecord | None = None,
    charges: Sequence[PricedUsage] = (),
) -> TurnRecord | TurnInterrupted:
    """Add a reply and its calls, or calls alone. Usage is recorded even if the turn is stopped or lost: those outcomes
    are returned, not raised, because an exception would roll it back.
    """
    usage.add(connection, claim, charges)
    try:
        record = record_cache.unchanged(record, own(connection, claim))
    except TurnInterrupted as interrupted:
        return interrupted
    calls = use_grants(connection, claim.turn_id, calls)
    more: Sequence[Step] = [*([reply] if reply else []), *calls]
    new = _add_steps(connection, claim.turn_id, more)
    mark_view_stale(connection, claim.turn_id)
    record = record_cache.with_steps(record, more) or read_record(connection, claim.turn_id)
    record_new(connection, record.turn, new)
    return record


def start_call(connection: sa.Connection, claim: Claim, n: int, *, record: TurnRecord | None = None) -> TurnRecord:
    """Record that a call is about to be sent. Raises LostLease if it may not be, and Stopped."""
    record = record_cache.unchanged(record, own(connection, claim))
    if connection.execute(_begin, {"t": claim.turn_id, "i": n, "f": claim.fence}).first() is None:
        raise LostLease(claim.turn_id)
    mark_view_stale(connection, claim.turn_id)
    return record_cache.with_call(record, n, StepStatus.STARTED) or read_record(connection, claim.turn_id)


def finish_call(
    connection: sa.Connection,
    claim: Claim,
    n: int,
    status: StepStatus,
    result: ToolResult,
    *,
    seconds: float | None,
    record: TurnRecord | None = None,
) -> TurnRecord:
    """Record how a call ended, also in a turn that is being stopped. `seconds` is how long it was under way, None if it
    was not sent. Raises LostLease.
    """
    record = record_cache.unchanged(record, own_to_the_end(connection, claim).revision)
    what = encode(files.save_files(connection, claim.turn_id, result))
    ended = connection.execute(_end, {"t": claim.turn_id, "i": n, "to": status, "what": what}).first()
    mark_view_stale(connection, claim.turn_id)
    changed = None if ended is None else record_cache.with_call(record, n, status, what)
    record = changed or read_record(connection, claim.turn_id)
    if any(step.n == n and step.pending_elicitations for step in record.calls):
        elicitation_rows.withdraw_of_step(connection, claim.turn_id, n)
        record = read_record(connection, claim.turn_id)
    if changed is not None and seconds is not None:
        record_sent(connection, changed.turn, next(step for step in changed.calls if step.n == n), seconds)
    elif ended is not None:
        record_finished(connection, claim.turn_id, n, seconds)
    return record


def keep_late_result(connection: sa.Connection, claim: Claim, n: int, result: ToolResult) -> None:
    """Record a result that arrived after the lease was lost. The step stays as the new owner settled it."""
    body = encode(files.strip_bytes(result))
    connection.execute(_keep_late_result, {"t": claim.turn_id, "i": n, "f": claim.fence, "what": body})
    audit.record(
        connection,
        "came late",
        audit.NOBODY,
        turn_id=claim.turn_id,
        conversation=str(claim.conversation),
        step=n,
        is_error=result.is_error,
    )


def save_summary(connection: sa.Connection, claim: Claim, summary: HistorySummary, past: History) -> None:
    """Save the summary of a conversation's oldest turns if all its sources exist. Raises LostLease and Stopped."""
    own(connection, claim)
    if summaries.stands(connection, str(claim.conversation), summary, past):
        summaries.keep_summary(connection, str(claim.conversation), summary)


def park(connection: sa.Connection, claim: Claim) -> TurnRecord | None:
    """Release the turn and its lease while it waits for users. Return its record instead if it can continue."""
    try:
        own(connection, claim)
    except LostLease:
        if connection.execute(_parked, {"t": claim.turn_id, "f": claim.fence}).first() is None:
            raise
        return None  # by this same transaction, after a lost COMMIT response
    expired = expire_overdue(connection, claim.turn_id)
    if elicitation_rows.settle_overdue(connection, claim.turn_id) or expired:
        mark_view_stale(connection, claim.turn_id)
    record = read_record(connection, claim.turn_id)
    open_calls = [step for step in record.calls if not step.status.ended]
    goes_on = not open_calls or any(step.status not in WAITING for step in open_calls)
    if not goes_on:
        park_until_decided(connection, claim.turn_id)
        mark_queued_views_stale(connection, claim.turn_id)
        notify_all(connection)
    record_expired(connection, claim.turn_id, expired)
    return record if goes_on else None


def park_until_decided(connection: sa.Connection, turn_id: str) -> None:
    """Park a turn until a decision, an answer, or the first expiry of its approvals and elicitations."""
    ends = (
        connection.execute(_wake_at, {"t": turn_id}).scalar(),
        elicitation_rows.earliest_expiry(connection, turn_id),
    )
    connection.execute(_park, {"t": turn_id, "at": min((end for end in ends if end is not None), default=None)})


def finish(
    connection: sa.Connection,
    claim: Claim,
    status: TurnStatus,
    last: Sequence[Step],
    failure: str,
    *,
    record: TurnRecord | None = None,
    charges: Sequence[PricedUsage] = (),
) -> TurnRecord | LostLease:
    """End the turn with its last steps. A stopped turn ends as cancelled, and no other turn does. Usage is recorded in
    any case, as in `append`.
    """
    usage.add(connection, claim, charges)
    try:
        owned = own_to_the_end(connection, claim)
    except LostLease as lost:
        if connection.execute(_finished, {"t": claim.turn_id, "f": claim.fence}).first() is None:
            return lost
        return read_record(connection, claim.turn_id)  # ended by this same transaction, after a lost COMMIT response
    if owned.stopped_by is None and status is TurnStatus.CANCELLED:
        release(connection, [claim])  # not stopped: the turn continues
    elif owned.stopped_by is None:
        new = _add_steps(connection, claim.turn_id, last)
        if new:
            record_new(connection, read_record(connection, claim.turn_id).turn, new)
        record = record_cache.with_steps(record_cache.unchanged(record, owned.revision), last)
        if record is not None and record_cache.is_settled(record):
            end_settled(connection, claim.turn_id, status, failure)
            return record_cache.ended(record, status, failure)
        end_turn(connection, claim.turn_id, status, failure)
    else:
        end_turn(connection, claim.turn_id, TurnStatus.CANCELLED, f"Stopped by {owned.stopped_by}.")
    return read_record(connection, claim.turn_id)


def fail(connection: sa.Connection, claim: Claim, failure: str) -> None:
    """End the turn without reading it. Raises LostLease."""
    try:
        stopped_by = own_to_the_end(connection, claim).stopped_by
    except LostLease:
        if connection.execute(_finished, {"t": claim.turn_id, "f": claim.fence}).first() is None:
            raise
        return
    if stopped_by is None:
        end_turn(connection, claim.turn_id, TurnStatus.FAILED, failure)
    else:
        end_turn(connection, claim.turn_id, TurnStatus.CANCELLED, f"Stopped by {stopped_by}.")


def _add_steps(connection: sa.Connection, turn_id: str, new: Sequence[Step]) -> Sequence[ToolStep]:
    """Return the new calls that await approval or are denied."""
    if new:
        connection.execute(_add_step.on(connection), [_step_row(turn_id, step) for step in new])
    return [step for step in new if isinstance(step, ToolStep) and _is_new_for_audit(connection, turn_id, step)]


def _is_new_for_audit(connection: sa.Connection, turn_id: str, step: ToolStep) -> bool:
    if step.approval is None:
        return step.status is StepStatus.DENIED
    return connection.execute(_add_approval.on(connection), _approval_row(turn_id, step)).first() is not None


def _step_row(turn_id: str, step: Step) -> dict[str, Any]:
    match step:
        case ModelStep():
            return {
                "turn_id": turn_id,
                "n": step.n,
                "kind": "model",
                "status": StepStatus.DONE,
                "repeatable": True,
                "body": encode(step),
                "result": None,
            }
        case ToolStep():
            return {
                "turn_id": turn_id,
                "n": step.n,
                "kind": "tool",
                "status": step.status,
                "repeatable": step.repeatable,
                "body": encode(step),
                "result": None if step.result is None else encode(step.result),
            }


def _approval_row(turn_id: str, step: ToolStep) -> dict[str, Any]:
    approval = step.approval
    assert approval is not None
    return {
        "id": approval.id,
        "turn_id": turn_id,
        "n": step.n,
        "revision": approval.revision,
        "fingerprint": approval.fingerprint,
        "proposed_arguments": dict(step.call.arguments),
        "requested_for_id": approval.requested_for.id,
        "requested_for_name": approval.requested_for.name,
        "expires_in": approval.expires_in,
        "requirements": encode(approval.terms),
        "proposed_secrets": converter.unstructure(approval.secrets),
        "remind_in": approval.remind_in,
    }
