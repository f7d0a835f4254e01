"""Metrics recorded by transactions and observed after their commit.

Turns, calls and approvals are counted where they end, so that each is counted once. `Database.run` passes the events
on; a rolled-back transaction records none.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import ConversationKey
from bot.domain.metrics import ApprovalEnded, ApprovalOutcome, MetricEvent
from bot.storage.clock import now
from bot.storage.tables import approvals, steps, turns

_EVENTS = "measurements"
"""Key of the events in a connection's `info`."""

_asked = (
    sa.select(turns.c.conversation, (now() - steps.c.created_at).label("seconds"))
    .join(turns, turns.c.id == steps.c.turn_id)
    .join(approvals, sa.and_(approvals.c.turn_id == steps.c.turn_id, approvals.c.n == steps.c.n))
    .where(steps.c.turn_id == bindparam("t"), steps.c.n.in_(bindparam("ns", expanding=True)))
)
_undecided = _asked.where(approvals.c.decided_at.is_(None))


def record(connection: sa.Connection, measurement: MetricEvent) -> None:
    """Record an event, to be observed after the commit."""
    connection.info.setdefault(_EVENTS, []).append(measurement)


def recorded(connection: sa.Connection) -> Sequence[MetricEvent]:
    """Return and remove the recorded events of a connection."""
    events: list[MetricEvent] = connection.info.pop(_EVENTS, [])
    return events


def note_approvals_ended(connection: sa.Connection, turn_id: str, ns: Sequence[int], outcome: ApprovalOutcome) -> None:
    """Record the end of the approvals of these steps."""
    _record_ends(connection, _asked, turn_id, ns, outcome)


def note_approvals_cancelled(connection: sa.Connection, turn_id: str, ns: Sequence[int]) -> None:
    """Record the cancellation of the undecided approvals among these steps of an ended turn."""
    _record_ends(connection, _undecided, turn_id, ns, "cancelled")


def platform_of(conversation: str) -> str:
    """Return the platform of a conversation's key; empty if the key is unreadable."""
    try:
        return ConversationKey.parse(conversation).platform
    except ValueError:
        return ""


def _record_ends(
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
