"""How turns end on disk, and how a change becomes something to draw: what the other transactions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.metrics import TurnEnded
from bot.domain.turns import OPEN, StepStatus, TurnStatus
from bot.storage import audit, elicitation_rows
from bot.storage.audit_calls import record_finished
from bot.storage.clock import now
from bot.storage.pg_notify import notify_all
from bot.storage.tables import approvals, deliveries, steps, turns
from bot.storage.tx_metrics import note_approvals_cancelled, note_approvals_ended, platform_of, record

LEASE_SECONDS = 15.0
"""How long a process that says nothing keeps what it drives or draws."""

# FOR NO KEY UPDATE: whoever inserts a row that refers to the turn does not wait for it.
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
_drawn_by_its_driver = sa.exists().where(
    turns.c.id == deliveries.c.turn_id, turns.c.owner == deliveries.c.owner, turns.c.status == TurnStatus.RUNNING
)
_want_drawing = (
    deliveries.update()
    .where(deliveries.c.turn_id == bindparam("t"))
    # A driver that writes lives: it gets the time to draw this, too. A dead one's time must not be prolonged by whoever
    # goes on with its turn.
    .values(
        wanted=deliveries.c.wanted + 1,
        problem="",
        lease_until=sa.case((_drawn_by_its_driver, now() + LEASE_SECONDS), else_=deliveries.c.lease_until),
    )
)
_waiting_behind, _theirs = turns.alias("waiting_behind"), deliveries.alias("theirs")
_want_drawings_behind = (
    deliveries.update()
    .where(
        deliveries.c.turn_id.in_(
            sa.select(_theirs.c.turn_id)
            .join(_waiting_behind, _waiting_behind.c.id == _theirs.c.turn_id)
            .join(turns, turns.c.conversation == _waiting_behind.c.conversation)
            .where(
                turns.c.id == bindparam("t"),
                _waiting_behind.c.seq > turns.c.seq,
                _waiting_behind.c.status == TurnStatus.QUEUED,
            )
            # Locked in the order of the conversation, so that two turns that end do not wait for each other.
            .order_by(_waiting_behind.c.seq)
            .with_for_update(of=_theirs)
        )
    )
    .values(wanted=deliveries.c.wanted + 1)
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


def lock_turn(connection: sa.Connection, turn_id: str) -> Any:
    """Lock a turn until the end of the transaction; its status and who has stopped it, None if it is gone."""
    return connection.execute(_lock, {"t": turn_id}).first()


def end_turn(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn: open calls become cancelled, calls in flight that cannot be repeated become unknown."""
    closed = connection.execute(_close_steps, {"t": turn_id}).all()
    elicitation_rows.withdraw_of_turn(connection, turn_id)
    for step in closed:
        if step.status == StepStatus.UNKNOWN:
            record_finished(connection, turn_id, step.n)
    note_approvals_cancelled(connection, turn_id, [step.n for step in closed if step.status == StepStatus.CANCELLED])
    end_settled(connection, turn_id, status, failure)


def end_settled(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn none of whose calls is open."""
    mark_view_stale(connection, turn_id)
    ended = connection.execute(_close_turn, {"t": turn_id, "to": status, "why": failure}).one()
    mark_queued_views_stale(connection, turn_id)
    record(connection, TurnEnded(platform_of(ended.conversation), status, max(0.0, ended.seconds)))
    notify_all(connection)


def mark_view_stale(connection: sa.Connection, turn_id: str) -> None:
    """Something has changed that people should see."""
    connection.execute(_want_drawing, {"t": turn_id})


def mark_queued_views_stale(connection: sa.Connection, turn_id: str) -> None:
    """What the turns queued behind this one wait for has changed: it waits for a signature, or no longer does, or has
    ended.
    """
    connection.execute(_want_drawings_behind, {"t": turn_id})


def requeue(connection: sa.Connection, turn_id: str) -> None:
    """What a turn waited for is settled: if it is parked, whoever is free goes on with it."""
    if connection.execute(_requeue, {"t": turn_id}).rowcount:
        mark_queued_views_stale(connection, turn_id)


def expire_overdue(connection: sa.Connection, turn_id: str) -> Sequence[int]:
    """Settle approvals whose time is up; which steps they were."""
    return connection.execute(_expire, {"t": turn_id}).scalars().all()


def record_expired(connection: sa.Connection, turn_id: str, expired: Sequence[int]) -> None:
    """Put on record that approvals timed out."""
    for n in expired:
        audit.record(connection, "expired", audit.NOBODY, turn_id=turn_id, step=n)
    note_approvals_ended(connection, turn_id, expired, "expired")
