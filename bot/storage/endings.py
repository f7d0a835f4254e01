"""How turns end on disk, and how a change becomes something to draw: what the other transactions share."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.turns import StepStatus, TurnStatus
from bot.storage import audit
from bot.storage.clock import now
from bot.storage.ringing import ring_all
from bot.storage.tables import approvals, deliveries, steps, turns

LEASE_SECONDS = 15.0
"""How long a process that says nothing keeps what it drives or draws."""

_close_steps = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.status.in_([StepStatus.AWAITING, StepStatus.READY, StepStatus.STARTED]),
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
)
_want_drawing = (
    deliveries.update()
    .where(deliveries.c.turn_id == bindparam("t"))
    # Whoever draws it at the moment gets the time to draw this, too.
    .values(
        wanted=deliveries.c.wanted + 1,
        problem="",
        lease_until=sa.case((deliveries.c.owner.is_not(None), now() + LEASE_SECONDS)),
    )
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


NOBODY = "countersign"
"""The actor of what the clock or a crash did."""


def end_turn(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn: open calls become cancelled, calls in flight that cannot be repeated become unknown."""
    for step in connection.execute(_close_steps, {"t": turn_id}).all():
        if step.status == StepStatus.UNKNOWN:
            audit.record(connection, "ended", NOBODY, turn_id=turn_id, step=step.n, status=step.status)
    connection.execute(_close_turn, {"t": turn_id, "to": status, "why": failure})
    show_change(connection, turn_id)
    ring_all(connection)


def show_change(connection: sa.Connection, turn_id: str) -> None:
    """Something has changed that people should see."""
    connection.execute(_want_drawing, {"t": turn_id})


def expire_overdue(connection: sa.Connection, turn_id: str) -> bool:
    """Settle approvals whose time is up; whether there were any."""
    expired = connection.execute(_expire, {"t": turn_id}).scalars().all()
    for n in expired:
        audit.record(connection, "expired", NOBODY, turn_id=turn_id, step=n)
    return bool(expired)
