"""How turns end on disk, and how a change becomes something to draw: what the other transactions share."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.turns import StepStatus, TurnStatus
from bot.storage.clock import now
from bot.storage.tables import approvals, deliveries, steps, turns

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
    .values(wanted=deliveries.c.wanted + 1, due_at=0, attempts=0, problem="")
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
)


def end_turn(connection: sa.Connection, turn_id: str, status: TurnStatus, failure: str) -> None:
    """End a turn: open calls become cancelled, calls in flight that cannot be repeated become unknown."""
    connection.execute(_close_steps, {"t": turn_id})
    connection.execute(_close_turn, {"t": turn_id, "to": status, "why": failure})
    show_change(connection, turn_id)


def show_change(connection: sa.Connection, turn_id: str) -> None:
    """Something has changed that people should see."""
    connection.execute(_want_drawing, {"t": turn_id})


def expire_overdue(connection: sa.Connection, turn_id: str) -> bool:
    """Settle approvals whose time is up; whether there were any."""
    return connection.execute(_expire, {"t": turn_id}).rowcount > 0
