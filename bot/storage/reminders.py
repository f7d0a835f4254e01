"""Reminders of approvals at half of their time. Each is claimed by one process, once."""

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
# The update decides between concurrent processes.
_claim = (
    approvals.update()
    .where(approvals.c.id == bindparam("a"), approvals.c.reminded_at.is_(None))
    .values(reminded_at=now())
    .returning(approvals.c.id)
)


def claim_due(connection: sa.Connection, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
    """Claim the calls whose approvers are due for a reminder, in conversations with one of the prefixes `reaches`. Each
    call is claimed by one process only.
    """
    due = [row.id for row in connection.execute(_due) if f"{row.conversation}:".startswith(tuple(reaches))]
    # Sorted, because two transactions that claim the same rows could deadlock.
    claimed = [id_ for id_ in sorted(due[:limit]) if connection.execute(_claim, {"a": id_}).first() is not None]
    return [reminder for id_ in claimed if (reminder := read_approval(connection, id_)) is not None]
