"""What a transaction has to say to whoever counts: noted while it runs, told once it is committed.

Called by the transactions in which turns, calls and approvals end, so that each end is counted by the process that
wrote it, and once. `Database.run` tells what was noted; a transaction that is rolled back has noted nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import ConversationKey
from bot.domain.metrics import ApprovalEnded, ApprovalOutcome, MetricEvent
from bot.storage.clock import now
from bot.storage.tables import approvals, steps, turns

_NOTED = "measurements"
"""The key in a connection's `info`, which is whose transaction runs on it."""

_asked = (
    sa.select(turns.c.conversation, (now() - steps.c.created_at).label("seconds"))
    .join(turns, turns.c.id == steps.c.turn_id)
    .join(approvals, sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n))
    .where(steps.c.turn_id == bindparam("t"), steps.c.n.in_(bindparam("ns", expanding=True)))
)
_undecided = _asked.where(approvals.c.decided_at.is_(None))


def record(connection: sa.Connection, measurement: MetricEvent) -> None:
    """Let it be told when this transaction is committed."""
    connection.info.setdefault(_NOTED, []).append(measurement)


def recorded(connection: sa.Connection) -> Sequence[MetricEvent]:
    """What was noted on this connection since this was last asked."""
    found: list[MetricEvent] = connection.info.pop(_NOTED, [])
    return found


def note_approvals_ended(connection: sa.Connection, turn_id: str, ns: Sequence[int], outcome: ApprovalOutcome) -> None:
    """The calls of these numbers wait for a signature no longer."""
    _note_ends(connection, _asked, turn_id, ns, outcome)


def note_approvals_cancelled(connection: sa.Connection, turn_id: str, ns: Sequence[int]) -> None:
    """The turn has ended with these calls open: those of them that nobody had decided wait no longer."""
    _note_ends(connection, _undecided, turn_id, ns, "cancelled")


def platform_of(conversation: str) -> str:
    """The platform of a conversation's key; empty if that cannot be read."""
    try:
        return ConversationKey.parse(conversation).platform
    except ValueError:
        return ""


def _note_ends(
    connection: sa.Connection,
    asked: sa.Select[tuple[str, float]],
    turn_id: str,
    ns: Sequence[int],
    outcome: ApprovalOutcome,
) -> None:
    if not ns:
        return
    for row in connection.execute(asked, {"t": turn_id, "ns": list(ns)}):
        record(connection, ApprovalEnded(platform_of(row.conversation), outcome, max(0.0, row.seconds)))
