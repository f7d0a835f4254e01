"""Transactions of whoever drives a turn: what the model said, how its calls went, parking and ending.

Each proves ownership first. Each can be run twice with the same effect, because the outcome of a COMMIT whose answer
got lost is not known.
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
from bot.storage import audit, elicitation_rows, files, grant_rows, record_cache, summaries, usage_rows
from bot.storage.audit_calls import record_finished, record_new, record_sent
from bot.storage.claims import own, own_to_the_end, release, settle_leftovers
from bot.storage.clock import now
from bot.storage.codec import encode_call, encode_reply, result_body, secrets_body, terms_body
from bot.storage.pg_notify import notify_all
from bot.storage.tables import Json, approvals, deliveries, steps, turns
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
            proposed=bindparam("proposed"),
            requested_for_id=bindparam("requested_for_id"),
            requested_for_name=bindparam("requested_for_name"),
            expires_in=bindparam("expires_in"),
            terms=bindparam("terms", type_=Json),
            remind_in=bindparam("remind_in"),
            proposed_secrets=bindparam("proposed_secrets", type_=Json),
            seen_from=sa.select(deliveries.c.wanted + 1)
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


def resume(connection: sa.Connection, held: Claim) -> TurnRecord:
    """Settle what was left behind and read the turn. Raises LostLease and Stopped."""
    own(connection, held)
    settle_leftovers(connection, held)
    return read_record(connection, held.turn_id)


def append(
    connection: sa.Connection,
    held: Claim,
    reply: ModelStep | None,
    calls: Sequence[ToolStep],
    *,
    known: TurnRecord | None = None,
    charges: Sequence[PricedUsage] = (),
) -> TurnRecord | TurnInterrupted:
    """Add a reply and its calls, or calls alone, in their places. What the reply has cost is kept in any case: who
    cannot go on is told by what this returns, so that nothing is rolled back.
    """
    usage_rows.add(connection, held, charges)
    try:
        known = record_cache.unchanged(known, own(connection, held))
    except TurnInterrupted as interrupted:
        return interrupted
    calls = grant_rows.use(connection, held.turn_id, calls)
    more: Sequence[Step] = [*([reply] if reply else []), *calls]
    new = _add_steps(connection, held.turn_id, more)
    mark_view_stale(connection, held.turn_id)
    record = record_cache.with_steps(known, more) or read_record(connection, held.turn_id)
    record_new(connection, record.turn, new)
    return record


def start_call(connection: sa.Connection, held: Claim, n: int, *, known: TurnRecord | None = None) -> TurnRecord:
    """Record that a call is about to be sent. Raises LostLease if it may not be, and Stopped."""
    known = record_cache.unchanged(known, own(connection, held))
    if connection.execute(_begin, {"t": held.turn_id, "i": n, "f": held.fence}).first() is None:
        raise LostLease(held.turn_id)
    mark_view_stale(connection, held.turn_id)
    return record_cache.with_call(known, n, StepStatus.STARTED) or read_record(connection, held.turn_id)


def finish_call(
    connection: sa.Connection,
    held: Claim,
    n: int,
    status: StepStatus,
    result: ToolResult,
    *,
    seconds: float | None,
    known: TurnRecord | None = None,
) -> TurnRecord:
    """Record how a call ended, also in a turn that is being stopped. `seconds` is how long it was under way, None if it
    was not sent. Raises LostLease.
    """
    known = record_cache.unchanged(known, own_to_the_end(connection, held).revision)
    what = result_body(files.save_files(connection, held.turn_id, result))
    ended = connection.execute(_end, {"t": held.turn_id, "i": n, "to": status, "what": what}).first()
    mark_view_stale(connection, held.turn_id)
    changed = None if ended is None else record_cache.with_call(known, n, status, what)
    record = changed or read_record(connection, held.turn_id)
    if any(step.n == n and step.pending_elicitations for step in record.calls):
        elicitation_rows.withdraw_of_step(connection, held.turn_id, n)
        record = read_record(connection, held.turn_id)
    if changed is not None and seconds is not None:
        record_sent(connection, changed.turn, next(step for step in changed.calls if step.n == n), seconds)
    elif ended is not None:
        record_finished(connection, held.turn_id, n, seconds)
    return record


def keep_late_result(connection: sa.Connection, held: Claim, n: int, result: ToolResult) -> None:
    """Keep what came back after the lease was lost, for the audit; the step stays as the new owner settled it."""
    told = result_body(files.strip_bytes(result))
    connection.execute(_keep_late_result, {"t": held.turn_id, "i": n, "f": held.fence, "what": told})
    audit.record(
        connection,
        "came late",
        audit.NOBODY,
        turn_id=held.turn_id,
        conversation=str(held.conversation),
        step=n,
        is_error=result.is_error,
    )


def save_summary(connection: sa.Connection, held: Claim, summary: HistorySummary, past: History) -> None:
    """Keep what stands for the conversation's oldest turns from now on, if all are still there that it was made of.
    Raises LostLease and Stopped.
    """
    own(connection, held)
    if summaries.stands(connection, str(held.conversation), summary, past):
        summaries.keep_summary(connection, str(held.conversation), summary)


def park(connection: sa.Connection, held: Claim) -> TurnRecord | None:
    """Give the turn back while people think: no task, no lease. The record instead if there is work after all."""
    try:
        own(connection, held)
    except LostLease:
        if connection.execute(_parked, {"t": held.turn_id, "f": held.fence}).first() is None:
            raise
        return None  # by this very transaction, whose answer was lost
    expired = expire_overdue(connection, held.turn_id)
    if elicitation_rows.settle_overdue(connection, held.turn_id) or expired:
        mark_view_stale(connection, held.turn_id)
    record = read_record(connection, held.turn_id)
    open_calls = [step for step in record.calls if not step.status.ended]
    goes_on = not open_calls or any(step.status not in WAITING for step in open_calls)
    if not goes_on:
        park_until_decided(connection, held.turn_id)
        mark_queued_views_stale(connection, held.turn_id)
        notify_all(connection)
    record_expired(connection, held.turn_id, expired)
    return record if goes_on else None


def park_until_decided(connection: sa.Connection, turn_id: str) -> None:
    """Let a turn wait for a decision or an answer, or for the first of its approvals or questions to expire."""
    ends = (
        connection.execute(_wake_at, {"t": turn_id}).scalar(),
        elicitation_rows.earliest_expiry(connection, turn_id),
    )
    connection.execute(_park, {"t": turn_id, "at": min((end for end in ends if end is not None), default=None)})


def finish(
    connection: sa.Connection,
    held: Claim,
    status: TurnStatus,
    last: Sequence[Step],
    failure: str,
    *,
    known: TurnRecord | None = None,
    charges: Sequence[PricedUsage] = (),
) -> TurnRecord | LostLease:
    """End the turn with its last steps. A turn that a person stopped ends as cancelled, and no other. What the steps
    have cost is kept in any case, as in `append`.
    """
    usage_rows.add(connection, held, charges)
    try:
        owned = own_to_the_end(connection, held)
    except LostLease as lost:
        if connection.execute(_finished, {"t": held.turn_id, "f": held.fence}).first() is None:
            return lost
        return read_record(connection, held.turn_id)  # ended by this very transaction, whose answer was lost
    if owned.stopped_by is None and status is TurnStatus.CANCELLED:
        release(connection, [held])  # nobody has stopped it after all: it goes on
    elif owned.stopped_by is None:
        new = _add_steps(connection, held.turn_id, last)
        if new:
            record_new(connection, read_record(connection, held.turn_id).turn, new)
        record = record_cache.with_steps(record_cache.unchanged(known, owned.revision), last)
        if record is not None and record_cache.is_settled(record):
            end_settled(connection, held.turn_id, status, failure)
            return record_cache.ended(record, status, failure)
        end_turn(connection, held.turn_id, status, failure)
    else:
        end_turn(connection, held.turn_id, TurnStatus.CANCELLED, f"Stopped by {owned.stopped_by}.")
    return read_record(connection, held.turn_id)


def fail(connection: sa.Connection, held: Claim, failure: str) -> None:
    """End the turn without reading it. Raises LostLease."""
    try:
        stopped_by = own_to_the_end(connection, held).stopped_by
    except LostLease:
        if connection.execute(_finished, {"t": held.turn_id, "f": held.fence}).first() is None:
            raise
        return
    if stopped_by is None:
        end_turn(connection, held.turn_id, TurnStatus.FAILED, failure)
    else:
        end_turn(connection, held.turn_id, TurnStatus.CANCELLED, f"Stopped by {stopped_by}.")


def _add_steps(connection: sa.Connection, turn_id: str, new: Sequence[Step]) -> Sequence[ToolStep]:
    """Those of them that ask for a signature and had not done so before, and those that are denied."""
    if new:
        connection.execute(_add_step.on(connection), [_step_row(turn_id, step) for step in new])
    return [step for step in new if isinstance(step, ToolStep) and _is_news(connection, turn_id, step)]


def _is_news(connection: sa.Connection, turn_id: str, step: ToolStep) -> bool:
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
                "body": encode_reply(step),
                "result": None,
            }
        case ToolStep():
            return {
                "turn_id": turn_id,
                "n": step.n,
                "kind": "tool",
                "status": step.status,
                "repeatable": step.repeatable,
                "body": encode_call(step),
                "result": None if step.result is None else result_body(step.result),
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
        "proposed": dict(step.call.arguments),
        "requested_for_id": approval.requested_for.id,
        "requested_for_name": approval.requested_for.name,
        "expires_in": approval.expires_in,
        "terms": terms_body(approval.terms),
        "proposed_secrets": secrets_body(approval.secrets),
        "remind_in": approval.remind_in,
    }
