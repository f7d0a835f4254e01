"""Who may drive a turn: claiming, renewing, giving back, and proving it before every write.

Leases run on the database's clock. On SQLite there is one process that claims; what a dead one left is adopted once,
at start, and a lease that ran out while the machine slept takes nothing away from its owner.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.conversations import ConversationKey
from bot.domain.turns import Claim, StepStatus, TurnStatus
from bot.errors import LostLease, Stopped
from bot.storage.clock import now
from bot.storage.endings import expire_overdue, show_change
from bot.storage.tables import LIVE, steps, turns

LEASE_SECONDS = 15.0

_candidate, _earlier = turns.alias("candidate"), turns.alias("earlier")
_abandoned = sa.and_(_candidate.c.status == TurnStatus.RUNNING, _candidate.c.owner.is_(None))
_claimable = (
    sa.select(_candidate.c.id)
    .where(
        sa.or_(
            _candidate.c.status == TurnStatus.QUEUED,
            _abandoned,
            sa.and_(_candidate.c.status == TurnStatus.WAITING, _candidate.c.wake_at <= now()),
        ),
        ~sa.exists().where(
            _earlier.c.conversation == _candidate.c.conversation,
            _earlier.c.seq < _candidate.c.seq,
            _earlier.c.status.in_(LIVE),
        ),
    )
    .order_by(_candidate.c.created_at, _candidate.c.seq)
    .limit(bindparam("limit"))
)
_claim = (
    turns.update()
    .where(turns.c.id.in_(_claimable))
    .values(
        status=TurnStatus.RUNNING,
        owner=bindparam("me"),
        fence=turns.c.fence + 1,
        lease_until=now() + LEASE_SECONDS,
        wake_at=None,
        recoveries=turns.c.recoveries + sa.case((turns.c.status == TurnStatus.RUNNING, 1), else_=0),
    )
    .returning(turns.c.id, turns.c.conversation, turns.c.fence, turns.c.recoveries)
)
_adopt = turns.update().where(turns.c.status == TurnStatus.RUNNING).values(owner=None, lease_until=None)
_renew = (
    turns.update()
    .where(turns.c.id == bindparam("t"), turns.c.fence == bindparam("f"), turns.c.status == TurnStatus.RUNNING)
    .values(lease_until=now() + LEASE_SECONDS)
    .returning(turns.c.stop_by)
)
_release = (
    turns.update()
    .where(turns.c.id == bindparam("t"), turns.c.fence == bindparam("f"), turns.c.status == TurnStatus.RUNNING)
    # Queued, not abandoned: a hand-over in good order is no recovery.
    .values(status=TurnStatus.QUEUED, owner=None, lease_until=None)
)
_reopen = (
    steps.update()
    .where(
        steps.c.turn_id == bindparam("t"),
        steps.c.status == StepStatus.STARTED,
        steps.c.fence < bindparam("f"),
    )
    .values(status=sa.case((steps.c.repeatable, StepStatus.READY.value), else_=StepStatus.UNKNOWN.value))
)


def adopt_orphans(connection: sa.Connection) -> None:
    """Take over what a dead process was driving. Only for the process that holds the lock file."""
    connection.execute(_adopt)


def claim(connection: sa.Connection, me: str, limit: int) -> Sequence[Claim]:
    """Take turns that can go on now, oldest first."""
    rows = connection.execute(_claim, {"me": me, "limit": limit}).all()
    return [Claim(row.id, ConversationKey.parse(row.conversation), row.fence, row.recoveries) for row in rows]


def renew(connection: sa.Connection, claims: Sequence[Claim]) -> frozenset[str]:
    """Renew leases; the ids of the turns that are still ours and that nobody wants stopped."""
    kept = set()
    for each in claims:
        row = connection.execute(_renew, {"t": each.turn_id, "f": each.fence}).first()
        if row is not None and row.stop_by is None:
            kept.add(each.turn_id)
    return frozenset(kept)


def release(connection: sa.Connection, claims: Sequence[Claim]) -> None:
    """Give turns back so that anybody can go on with them at once."""
    for each in claims:
        connection.execute(_release, {"t": each.turn_id, "f": each.fence})


def own(connection: sa.Connection, held: Claim) -> None:
    """Prove that the turn is still ours and renew its lease. Raises LostLease, or Stopped if a person stopped it."""
    if own_to_the_end(connection, held) is not None:
        raise Stopped(held.turn_id)


def own_to_the_end(connection: sa.Connection, held: Claim) -> str | None:
    """Prove that the turn is still ours, stopped or not; the name of whoever stopped it. Raises LostLease."""
    row = connection.execute(_renew, {"t": held.turn_id, "f": held.fence}).first()
    if row is None:
        raise LostLease(held.turn_id)
    stopped_by: str | None = row.stop_by
    return stopped_by


def settle_leftovers(connection: sa.Connection, held: Claim) -> None:
    """Settle what the previous owner had in flight and what has timed out since."""
    reopened = connection.execute(_reopen, {"t": held.turn_id, "f": held.fence}).rowcount
    if expire_overdue(connection, held.turn_id) or reopened:
        show_change(connection, held.turn_id)
