"""Which questions are at half time: each is handed to one process, and once."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.turns import StepStatus, ToolStep, Turn
from bot.storage.clock import now
from bot.storage.tables import approvals, steps, turns
from bot.storage.turn_reader import read_approval

_due = (
    sa.select(approvals.c.id, turns.c.conversation)
    .join(steps, sa.and_(steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n))
    .join(turns, turns.c.id == approvals.c.turn_id)
    .where(
        approvals.c.remind_in.is_not(None),
        approvals.c.reminded_at.is_(None),
        approvals.c.posted_at + approvals.c.remind_in <= now(),
        sa.or_(approvals.c.expires_at.is_(None), approvals.c.expires_at > now()),
        steps.c.status == StepStatus.AWAITING,
    )
    .order_by(approvals.c.posted_at)
)
# The row decides between processes that look at the same moment.
_take = (
    approvals.update()
    .where(approvals.c.id == bindparam("a"), approvals.c.reminded_at.is_(None))
    .values(reminded_at=now())
    .returning(approvals.c.id)
)


def claim_due(connection: sa.Connection, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
    """Calls that wait for a signature and whose approvers are to be reminded now, in conversations that one of
    `reaches` takes in. Nobody else gets them.
    """
    due = [row.id for row in connection.execute(_due) if f"{row.conversation}:".startswith(tuple(reaches))]
    # In one order everywhere: two that take the same must not wait for each other.
    taken = [each for each in sorted(due[:limit]) if connection.execute(_take, {"a": each}).first() is not None]
    return [found for each in taken if (found := read_approval(connection, each)) is not None]
