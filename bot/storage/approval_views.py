"""Transactions of people who open the whole call of an approval in private before they decide."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import Decision, Portion
from bot.domain.conversations import Author
from bot.domain.turns import StepStatus
from bot.storage import audit
from bot.storage.audit_calls import server_id_of
from bot.storage.clock import now
from bot.storage.tables import approval_views, approvals, steps
from bot.storage.turn_completion import lock_turn

_asked = (
    sa.select(approvals.c.turn_id, approvals.c.n, approvals.c.revision, approvals.c.fingerprint, steps.c.status)
    .join(steps, sa.and_(steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n))
    .where(approvals.c.id == bindparam("approval_id"))
)
_this = sa.and_(
    approval_views.c.approval_id == bindparam("a"),
    approval_views.c.revision == bindparam("r"),
    approval_views.c.person == bindparam("p"),
)
_seen = sa.select(approval_views.c.pages, approval_views.c.seen).where(_this)
_add = approval_views.insert().values(
    approval_id=bindparam("a"),
    revision=bindparam("r"),
    person=bindparam("p"),
    pages=bindparam("pages"),
    seen=bindparam("seen"),
    at=now(),
)
_update = approval_views.update().where(_this).values(pages=bindparam("to_pages"), seen=bindparam("to_seen"))


def record_view(connection: sa.Connection, approval_id: str, revision: int, portion: Portion, by: Author) -> bool:
    """Record that somebody opens a page of a whole call, and once in the audit that they have opened it. Pages count
    in their order. Return False if the call does not wait at this revision.
    """
    asked = connection.execute(_asked, {"approval_id": approval_id}).first()
    if asked is None:
        return False
    lock_turn(connection, asked.turn_id)
    # Re-read under the lock: the call may have been decided or revised.
    asked = connection.execute(_asked, {"approval_id": approval_id}).first()
    if asked is None or asked.status != StepStatus.AWAITING or asked.revision != revision:
        return False
    this = {"a": approval_id, "r": revision, "p": by.principal}
    known = connection.execute(_seen, this).first()
    # Another release may divide a call into other pages: then they are seen from the first one on.
    before = known.seen if known is not None and known.pages == portion.of else 0
    seen = portion.number if portion.number == before + 1 else before
    if known is None:
        connection.execute(_add, {**this, "pages": portion.of, "seen": seen})
        audit.record(
            connection,
            "opened",
            by.principal,
            turn_id=asked.turn_id,
            subject=server_id_of(connection, approval_id),
            step=asked.n,
            approval=approval_id,
            revision=revision,
            fingerprint=asked.fingerprint,
        )
    elif portion.number and (known.pages, known.seen) != (portion.of, seen):
        connection.execute(_update, {**this, "to_pages": portion.of, "to_seen": seen})
    return True


def has_viewed(connection: sa.Connection, decision: Decision) -> bool:
    """Return True if whoever decides has opened every page of the whole call at this revision."""
    this = {"a": decision.approval_id, "r": decision.revision, "p": decision.by.principal}
    found = connection.execute(_seen, this).first()
    return found is not None and found.seen >= found.pages
