"""Rows of elicitations, written and read within other transactions.

An elicitation with a round belongs to a call that is sent again with the answers. Round 0 belongs to a call that waits
for the answer while it is running.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.elicitations import (
    DECLINED,
    EXPIRED_REASON,
    Elicitation,
    ElicitationAction,
    ElicitationResult,
    ElicitationResults,
    FormMode,
    rejection_reason,
)
from bot.domain.turns import StepStatus
from bot.storage import audit
from bot.storage.codec import decode, encode
from bot.storage.database import matching, now
from bot.storage.tables import deliveries, elicitations, steps, this_delivery, this_step, turns

next_revision = sa.select(deliveries.c.revision + 1).where(this_delivery).scalar_subquery()
"""The revision of turn `t` that a change of this transaction makes."""
_add = elicitations.insert().values(created_at=now(), view_revision=next_revision)
_of_this_turn = matching(elicitations, turn_id="t")
_of_this_step = matching(elicitations, turn_id="t", n="i")
_rounds = sa.select(sa.func.coalesce(sa.func.max(elicitations.c.round), 0)).where(_of_this_step)
_of_turn = (
    sa.select(elicitations)
    .where(_of_this_turn)
    .order_by(elicitations.c.n, elicitations.c.round, elicitations.c.created_at, elicitations.c.key)
)
_is_this = matching(elicitations, id="e")
_one = (
    sa.select(elicitations, steps.c.status.label("step"), (elicitations.c.expires_at <= now()).label("overdue"))
    .join(steps, sa.and_(steps.c.turn_id == elicitations.c.turn_id, steps.c.n == elicitations.c.n))
    .where(_is_this)
)
_open = elicitations.c.status == "open"
_close = (
    elicitations.update()
    .where(_open)
    .values(
        status=bindparam("to"),
        answer=bindparam("what", type_=elicitations.c.answer.type),
        answered_by=bindparam("by"),
        reason=bindparam("why"),
        answered_at=now(),
    )
)
_close_one = _close.where(_is_this).returning(elicitations.c.turn_id)
_close_of_step = _close.where(_of_this_step).returning(elicitations.c.n)
_close_of_turn = _close.where(_of_this_turn).returning(elicitations.c.n)
_close_overdue = _close.where(_of_this_turn, elicitations.c.expires_at <= now()).returning(elicitations.c.n)
# A call that was running when its process died can take no answer.
_close_orphaned = _close.where(
    _of_this_turn, elicitations.c.round == 0, elicitations.c.fence < bindparam("f")
).returning(elicitations.c.n)
_of_step = sa.and_(elicitations.c.turn_id == steps.c.turn_id, elicitations.c.n == steps.c.n)
_still_asked = sa.exists().where(_of_step, _open)
_go_on = (
    steps.update()
    .where(matching(steps, turn_id="t"), steps.c.status == StepStatus.ASKING, ~_still_asked)
    .values(status=StepStatus.READY)
    .returning(steps.c.n)
)
_wait = (
    steps.update()
    .where(this_step, steps.c.status.in_([StepStatus.READY, StepStatus.STARTED]))
    .values(status=StepStatus.ASKING)
    .returning(steps.c.n)
)
_is_unposted = sa.and_(
    _of_this_turn, _open, elicitations.c.expires_at.is_(None), elicitations.c.view_revision <= bindparam("upto")
)
_posted = elicitations.update().where(_is_unposted).values(expires_at=now() + elicitations.c.expires_in)
_unseen = sa.select(elicitations.c.id).where(_is_unposted)
_soonest = sa.select(sa.func.min(elicitations.c.expires_at)).where(_of_this_turn, _open)

unposted = sa.exists().where(_is_unposted, elicitations.c.expires_in.is_not(None))
"""Condition: an elicitation of turn `t` up to revision `upto` has not started to expire."""
asked_back = sa.exists().where(elicitations.c.turn_id == turns.c.id)
"""Condition: the turn has any elicitation. Few turns have one."""
still_asks = sa.exists().where(elicitations.c.turn_id == turns.c.id, _open)
"""Condition: a server awaits an answer in the turn."""


def add_elicitations(
    connection: sa.Connection, turn_id: str, n: int, new: Sequence[Elicitation], state: str | None
) -> None:
    """Save the elicitations of a call that is sent again with the answers. The call is suspended. Without a user,
    it continues at once. Safe to run twice.
    """
    if connection.execute(_wait, {"t": turn_id, "i": n}).first() is None:
        return
    number = connection.execute(_rounds, {"t": turn_id, "i": n}).scalar_one() + 1
    for step in new:
        _insert(connection, turn_id, n, replace(step, round=number), state=state)
    connection.execute(_go_on, {"t": turn_id})


def ask_meanwhile(connection: sa.Connection, turn_id: str, n: int, new: Elicitation, fencing_token: int) -> None:
    """Save the elicitation of a running call. Safe to run twice."""
    if find_row(connection, new.id) is None:
        _insert(connection, turn_id, n, new, fencing_token=fencing_token)


def withdraw_elicitation(connection: sa.Connection, elicitation_id: str, reason: str) -> None:
    """Withdraw one open elicitation."""
    row = connection.execute(_close_one, {"e": elicitation_id, **_withdrawn(reason)}).first()
    if row is not None:
        connection.execute(_go_on, {"t": row.turn_id})


def withdraw_of_step(connection: sa.Connection, turn_id: str, n: int) -> None:
    """Withdraw the open elicitations of an ended call."""
    connection.execute(_close_of_step, {"t": turn_id, "i": n, **_withdrawn("")})


def withdraw_of_turn(connection: sa.Connection, turn_id: str) -> None:
    """Withdraw the open elicitations of an ended turn."""
    connection.execute(_close_of_turn, {"t": turn_id, **_withdrawn("")})


def settle_elicitations(connection: sa.Connection, turn_id: str, fencing_token: int) -> bool:
    """Settle expired elicitations, and those of calls that were running in a dead process. Return True if there were
    any.
    """
    orphaned = connection.execute(_close_orphaned, {"t": turn_id, "f": fencing_token, **_withdrawn("")}).all()
    return bool(orphaned) | settle_overdue(connection, turn_id)


def settle_overdue(connection: sa.Connection, turn_id: str) -> bool:
    """Settle expired elicitations and requeue the calls that wait for nothing else. Return True if there were any."""
    overdue = connection.execute(_close_overdue, {"t": turn_id, **_withdrawn(EXPIRED_REASON)}).all()
    return bool(connection.execute(_go_on, {"t": turn_id}).all()) or bool(overdue)


def start_expiry(connection: sa.Connection, turn_id: str, revision: int) -> bool:
    """Start the expiry of the elicitations requested up to `revision`. Return True if there are any."""
    return bool(connection.execute(_posted, {"t": turn_id, "upto": revision}).rowcount)


def cancel_undelivered(connection: sa.Connection, turn_id: str, revision: int, reason: str) -> bool:
    """Cancel elicitations up to `revision` that cannot be delivered. Return True if there were any."""
    unseen = connection.execute(_unseen, {"t": turn_id, "upto": revision}).scalars().all()
    for elicitation_id in unseen:
        withdraw_elicitation(connection, elicitation_id, reason)
    return bool(unseen)


def earliest_expiry(connection: sa.Connection, turn_id: str) -> float | None:
    """Return the earliest expiry of a turn's elicitations in epoch seconds, `None` without any."""
    end: float | None = connection.execute(_soonest, {"t": turn_id}).scalar()
    return end


def read_rows(connection: sa.Connection, turn_id: str) -> Mapping[int, Sequence[Any]]:
    """Return the rows of a turn by step number, in order."""
    by_step: dict[int, list[Any]] = defaultdict(list)
    for row in connection.execute(_of_turn, {"t": turn_id}):
        by_step[row.n].append(row)
    return by_step


def elicitations_of(rows: Sequence[Any]) -> tuple[Elicitation, ...]:
    """Decode the elicitations of a step."""
    return tuple(
        replace(decode(Elicitation, row._asdict(), question=row.request), reply=_read_reply(row)) for row in rows
    )


def replies_of(rows: Sequence[Any]) -> ElicitationResults | None:
    """Return the results to send with a step's next request: the answers of its last round, if any."""
    last = max((row.round for row in rows), default=0)
    if not last:
        return None
    of_last = [row for row in rows if row.round == last]
    answered = {row.request["key"]: reply for row in of_last if (reply := _read_reply(row)) is not None}
    return ElicitationResults(answered, of_last[0].state)


def find_row(connection: sa.Connection, elicitation_id: str) -> Any:
    """Return the row of an elicitation with its expiry state (`overdue`), `None` if it does not exist."""
    return connection.execute(_one, {"e": elicitation_id}).first()


def close_elicitation(connection: sa.Connection, elicitation_id: str, reply: ElicitationResult, by: str) -> None:
    """Save an answer, and requeue the call if it waits for no other."""
    params = {"to": reply.action.value, "what": content_of(reply), "by": by, "why": ""}
    row = connection.execute(_close_one, {"e": elicitation_id, **params}).first()
    if row is not None:
        connection.execute(_go_on, {"t": row.turn_id})


def _insert(
    connection: sa.Connection,
    turn_id: str,
    n: int,
    new: Elicitation,
    *,
    state: str | None = None,
    fencing_token: int | None = None,
) -> None:
    reason = rejection_reason(new.question)
    key = new.question.key if new.round else new.id
    status = DECLINED.action.value if reason else "open"
    where = {"id": new.id, "turn_id": turn_id, "t": turn_id, "n": n, "round": new.round, "key": key}
    asked = {"request": encode(new.question), "state": state, "fence": fencing_token, "expires_in": new.expires_in}
    connection.execute(_add, {**where, **asked, "status": status, "reason": reason})
    mode = "form" if isinstance(new.question.ask, FormMode) else "link"
    facts = {"elicitation": new.id, "mode": mode, **({"declined": reason} if reason else {})}
    audit.record(connection, "asked back", audit.NOBODY, turn_id=turn_id, step=n, **facts)


def _read_reply(row: Any) -> ElicitationResult | None:
    return None if row.status == "open" else ElicitationResult(ElicitationAction(row.status), row.answer)


def content_of(reply: ElicitationResult) -> dict[str, Any] | None:
    """Encode the values of an answer."""
    return None if reply.content is None else dict(reply.content)


def _withdrawn(reason: str) -> dict[str, Any]:
    return {"to": ElicitationAction.CANCEL.value, "what": None, "by": "", "why": reason}
