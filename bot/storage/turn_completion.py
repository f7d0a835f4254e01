"""Shared parts of the turn transactions: locks, ends of turns and stale views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.metrics import TurnEnded
from bot.domain.turns import OPEN, StepStatus, TurnStatus
from bot.storage import audit, elicitation_rows
from bot.storage.audit_calls import record_finished
from bot.storage.database import note_approvals_cancelled, note_approvals_ended, platform_of, record
from bot.storage.dialect import notify_all, now
from bot.storage.tables import approvals, deliveries, steps, turns

LEASE_SECONDS = 15.0
"""Lease duration of claims and deliveries, in seconds."""

# FOR NO KEY UPDATE does not block inserts of rows that refer to the turn.
_lock = sa.select(turns.c.status, turns.c.stop_by).where(turns.c.id == bindparam("t")).with_for_update(key_share=True)
_close_steps = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.status.in_(OPEN),
    )
    .values(
        status=sa.case(
            (sa.and_(steps.c.status == StepStatus.STARTED, sa.not_(steps.c.repeatable)), StepStatus.UNKNOWN.value),
            else_=StepStatus.CANCELLED.value,
        ),
        ended_at=now(),
    )
    .returning(steps.c.n, steps.c.status)
)
_close_turn = (
    turns.update()
    .where(turns.c.id == bindparam("t"))
    .values(
        status=bindparam("to"),
        failure=bindparam("why"),
        owner=None,
        lease_until=None,
        wake_at=None,
        ended_at=now(),
    )
    .returning(turns.c.conversation, (now() - turns.c.created_at).label("seconds"))
)
_delivered_by_owner = sa.exists().where(
    turns.c.id == deliveries.c.turn_id, turns.c.owner == deliveries.c.owner, turns.c.status == TurnStatus.RUNNING
)
_raise_wanted = (
    deliveries.update()
    .where(deliveries.c.turn_id == bindparam("t"))
    # A writing owner is alive, so its delivery lease is extended. The lease of a dead owner must not be extended by the
    # next owner of the turn.
    .values(
        revision=deliveries.c.revision + 1,
        error="",
        lease_until=sa.case((_delivered_by_owner, now() + LEASE_SECONDS), else_=deliveries.c.lease_until),
    )
)
_waiting_behind, _of_turn = turns.alias("waiting_behind"), deliveries.alias("theirs")
_raise_wanted_of_queued = (
    deliveries.update()
    .where(
        deliveries.c.turn_id.in_(
            sa.select(_of_turn.c.turn_id)
            .join(_waiting_behind, _waiting_behind.c.id == _of_turn.c.turn_id)
            .join(turns, turns.c.conversation == _waiting_behind.c.conversation)
            .where(
                turns.c.id == bindparam("t"),
                _waiting_behind.c.seq > turns.c.seq,
                _waiting_behind.c.status == TurnStatus.QUEUED,
            )
            # Locked in the order of the conversation, so that two ending turns cannot deadlock.
            .order_by(_waiting_behind.c.seq)
            .with_for_update(of=_of_turn)
        )
    )
    .values(revision=deliveries.c.revision + 1)
)
_expire = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.status == StepStatus.AWAITING,
        sa.exists().where(
            approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n, approvals.c.expires_at <= now()
        ),
    )
    .values(status=StepStatus.EXPIRED, ended_at=now())
    .returning(steps.c.n)
)
_requeue = (
    turns.update()
    .where(turns.c.id == bindparam("t"), turns.c.status == TurnStatus.WAITING)
    .values(status=TurnStatus.QUEUED, wake_at=None)
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


def lock_turn(connection: sa.Connection, turn_id: str) -> Any:
    """Lock a turn until the end of the transaction. Return its status and the user who stopped it, `None` if it is
    gone.
    """
    return connection.execute(_lock, {"t": turn_id}).first()


def end_turn(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn. Open calls become cancelled; running calls that cannot be repeated become unknown."""
    closed = connection.execute(_close_steps, {"t": turn_id}).all()
    elicitation_rows.withdraw_of_turn(connection, turn_id)
    for step in closed:
        if step.status == StepStatus.UNKNOWN:
            record_finished(connection, turn_id, step.n)
    note_approvals_cancelled(connection, turn_id, [step.n for step in closed if step.status == StepStatus.CANCELLED])
    end_settled(connection, turn_id, status, failure)


def end_settled(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn without open calls."""
    mark_view_stale(connection, turn_id)
    ended = connection.execute(_close_turn, {"t": turn_id, "to": status, "why": failure}).one()
    mark_queued_views_stale(connection, turn_id)
    record(connection, TurnEnded(platform_of(ended.conversation), status, max(0.0, ended.seconds)))
    notify_all(connection)


def mark_view_stale(connection: sa.Connection, turn_id: str) -> None:
    """Raise the wanted revision of a turn's view."""
    connection.execute(_raise_wanted, {"t": turn_id})


def mark_queued_views_stale(connection: sa.Connection, turn_id: str) -> None:
    """Mark the views of the queued turns as stale, because the blocking reason of this turn has changed."""
    connection.execute(_raise_wanted_of_queued, {"t": turn_id})


def requeue(connection: sa.Connection, turn_id: str) -> None:
    """Queue a suspended turn, because its wait has ended."""
    if connection.execute(_requeue, {"t": turn_id}).rowcount:
        mark_queued_views_stale(connection, turn_id)


def expire_overdue(connection: sa.Connection, turn_id: str) -> Sequence[int]:
    """Settle expired approvals. Return their step numbers."""
    return connection.execute(_expire, {"t": turn_id}).scalars().all()


def record_expired(connection: sa.Connection, turn_id: str, expired: Sequence[int]) -> None:
    """Record in the audit that approvals expired."""
    for n in expired:
        audit.record(connection, "expired", audit.NOBODY, turn_id=turn_id, step=n)
    note_approvals_ended(connection, turn_id, expired, "expired")


def suspend_until_decided(connection: sa.Connection, turn_id: str) -> None:
    """Park a turn until a decision, an answer, or the first expiry of its approvals and elicitations."""
    ends = (
        connection.execute(_wake_at, {"t": turn_id}).scalar(),
        elicitation_rows.earliest_expiry(connection, turn_id),
    )
    connection.execute(_park, {"t": turn_id, "at": min((end for end in ends if end is not None), default=None)})
