"""Transactions that record which pages of a whole call an approver has opened in private."""

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

_viewed_call = (
    sa.select(approvals.c.turn_id, approvals.c.n, approvals.c.revision, approvals.c.fingerprint, steps.c.status)
    .join(steps, sa.and_(steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n))
    .where(approvals.c.id == bindparam("approval_id"))
)
_this_view = sa.and_(
    approval_views.c.approval_id == bindparam("a"),
    approval_views.c.revision == bindparam("r"),
    approval_views.c.principal == bindparam("p"),
)
_select_view = sa.select(approval_views.c.pages, approval_views.c.viewed).where(_this_view)
_add = approval_views.insert().values(
    approval_id=bindparam("a"),
    revision=bindparam("r"),
    principal=bindparam("p"),
    pages=bindparam("pages"),
    viewed=bindparam("viewed"),
    at=now(),
)
_update = approval_views.update().where(_this_view).values(pages=bindparam("to_pages"), viewed=bindparam("to_viewed"))


def record_view(connection: sa.Connection, approval_id: str, revision: int, portion: Portion, by: Author) -> bool:
    """Record that a user opened a page of a whole call; the first page also goes to the audit. Pages count only in
    their order. Return False if the call is not awaiting approval at this revision.
    """
    row = connection.execute(_viewed_call, {"approval_id": approval_id}).first()
    if row is None:
        return False
    lock_turn(connection, row.turn_id)
    # Re-read under the lock: the call may have been decided or revised.
    row = connection.execute(_viewed_call, {"approval_id": approval_id}).first()
    if row is None or row.status != StepStatus.AWAITING or row.revision != revision:
        return False
    key = {"a": approval_id, "r": revision, "p": by.principal}
    view = connection.execute(_select_view, key).first()
    # Another release may split the call into other pages; counting restarts then.
    before = view.viewed if view is not None and view.pages == portion.of else 0
    viewed = portion.number if portion.number == before + 1 else before
    if view is None:
        connection.execute(_add, {**key, "pages": portion.of, "viewed": viewed})
        audit.record(
            connection,
            "opened",
            by.principal,
            turn_id=row.turn_id,
            subject=server_id_of(connection, approval_id),
            step=row.n,
            approval=approval_id,
            revision=revision,
            fingerprint=row.fingerprint,
        )
    elif portion.number and (view.pages, view.viewed) != (portion.of, viewed):
        connection.execute(_update, {**key, "to_pages": portion.of, "to_viewed": viewed})
    return True


def has_viewed(connection: sa.Connection, decision: Decision) -> bool:
    """Return True if the approver has opened every page of the whole call at this revision."""
    key = {"a": decision.approval_id, "r": decision.revision, "p": decision.by.principal}
    view = connection.execute(_select_view, key).first()
    return view is not None and view.viewed >= view.pages
