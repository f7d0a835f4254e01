"""Counts of unfinished turns, approvals and deliveries. Read for every metrics request, so their cost does not grow
with the history.
"""

from __future__ import annotations

from functools import lru_cache

import sqlalchemy as sa

from bot.domain.turns import StepStatus, TurnStatus
from bot.ports import Backlog
from bot.storage.clock import now
from bot.storage.tables import LIVE, deliveries, is_live, steps, turns

_MOST = 10_000
"""Of each kind, counted no further."""

_live = (
    sa.select(turns.c.id, turns.c.conversation, turns.c.seq, turns.c.status, turns.c.created_at, turns.c.person)
    .where(is_live(turns))
    .order_by(turns.c.created_at)
    .limit(_MOST)
    .cte("live")
    .prefix_with("materialized")
)
_ahead = _live.alias("ahead")
_by_status = sa.select(_live.c.status, sa.func.count().label("number")).group_by(_live.c.status)
_beside = _live.alias("beside")
_waiting = (
    sa.select(sa.func.count())
    .select_from(_live.join(steps, steps.c.turn_id == _live.c.id))
    .where(steps.c.status == StepStatus.AWAITING.value)
)
_undrawn = sa.select(sa.func.count()).select_from(
    sa.select(deliveries.c.turn_id)
    .join(turns, turns.c.id == deliveries.c.turn_id)
    .where(sa.text("drawn < wanted"), turns.c.status != TurnStatus.RUNNING.value)
    .limit(_MOST)
    .subquery()
)


@lru_cache
def _first_ready(most_running: int) -> sa.Select[float]:
    """Return a query for the age of the oldest claimable turn, in seconds."""
    at_limit = (
        sa.select(_beside.c.person)
        .where(_beside.c.status == TurnStatus.RUNNING.value)
        .group_by(_beside.c.person)
        .having(sa.func.count() >= most_running)
    )
    return sa.select(now() - sa.func.min(_live.c.created_at)).where(
        _live.c.status == TurnStatus.QUEUED.value,
        ~sa.exists().where(_ahead.c.conversation == _live.c.conversation, _ahead.c.seq < _live.c.seq),
        _live.c.person.not_in(at_limit),
    )


def read_backlog(connection: sa.Connection, most_running: int) -> Backlog:
    """Return the amount of unfinished work, with at most `most_running` turns of one user at a time."""
    numbers = {row.status: row.number for row in connection.execute(_by_status)}
    return Backlog(
        turns={status: numbers.get(status, 0) for status in LIVE},
        oldest_ready=max(0.0, connection.execute(_first_ready(most_running)).scalar() or 0.0),
        approvals=connection.execute(_waiting).scalar_one(),
        drawings=connection.execute(_undrawn).scalar_one(),
    )
