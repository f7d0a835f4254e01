"""Calls whose card can never be posted: turned down, since nobody can sign what nobody sees.

Called by the transaction that gives up a drawing. A card that was out once is not touched, whatever becomes of later
drawings, and neither is a call that somebody has decided meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.messages import TextPart, ToolResult
from bot.domain.turns import StepStatus
from bot.storage import audit
from bot.storage.clock import now
from bot.storage.codec import decode_call, result_body
from bot.storage.pg_notify import notify_turn
from bot.storage.tables import approvals, steps, turns
from bot.storage.turn_completion import mark_view_stale, requeue
from bot.storage.tx_metrics import note_approvals_ended

_SAID = "The approval could not be shown here: {}. Not run."

_unseen = (
    sa.select(approvals.c.n, approvals.c.id, steps.c.body)
    .join(steps, sa.and_(steps.c.turn_id == approvals.c.turn_id, steps.c.n == approvals.c.n))
    .where(
        approvals.c.turn_id == bindparam("t"),
        approvals.c.posted_at.is_(None),
        approvals.c.seen_from <= bindparam("upto"),
        steps.c.status == StepStatus.AWAITING,
    )
    .order_by(approvals.c.n)
)
_lock = sa.select(turns.c.id).where(turns.c.id == bindparam("t")).with_for_update(key_share=True)
_deny = (
    steps.update()
    .where(steps.c.turn_id == bindparam("t"), steps.c.n == bindparam("i"))
    .values(status=StepStatus.DENIED, result=bindparam("what"), ended_at=now())
)
_give_reason = (
    approvals.update().where(approvals.c.id == bindparam("a")).values(decided_at=now(), reason=bindparam("why"))
)


def deny_undeliverable(connection: sa.Connection, turn_id: str, revision: int, cause: str) -> Sequence[int]:
    """Turn down the calls that are asked for up to `revision` and that nobody has seen; which steps they were. `cause`
    is a sentence for people and the model.
    """
    told = {"t": turn_id, "upto": revision}
    if connection.execute(_unseen, told).first() is None:
        return ()
    connection.execute(_lock, {"t": turn_id})
    # Read again under the lock: somebody may have decided by other means than a card, or stopped the turn.
    unseen = connection.execute(_unseen, told).all()
    said = _SAID.format(cause.strip().removesuffix("."))
    for each in unseen:
        call, _tool, _origin = decode_call(each.body)
        result = ToolResult(call.id, (TextPart(said),), is_error=True)
        connection.execute(_deny, {"t": turn_id, "i": each.n, "what": result_body(result)})
        connection.execute(_give_reason, {"a": each.id, "why": said})
    if unseen:
        requeue(connection, turn_id)
        mark_view_stale(connection, turn_id)
        notify_turn(connection, turn_id)
    return [each.n for each in unseen]


def record_undeliverable(connection: sa.Connection, turn_id: str, denied: Sequence[int]) -> None:
    """Put on record that calls were turned down because their cards could not be posted."""
    for n in denied:
        audit.record(connection, "not shown", audit.NOBODY, turn_id=turn_id, step=n)
    note_approvals_ended(connection, turn_id, denied, "not shown")
