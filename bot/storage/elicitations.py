"""Transactions on what servers ask back: asked by whoever drives the turn, answered by any process, withdrawn when
nobody needs the answer any more.

Each can be run twice with the same effect. Answers are values that a person has typed: the audit has none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound
from bot.domain.conversations import Author
from bot.domain.elicitation_answers import AnswerRejected, ElicitationAnswered, OpenElicitation
from bot.domain.elicitations import Elicitation, ElicitationAction, ElicitationResult
from bot.domain.turns import Claim, TurnRecord
from bot.storage import audit
from bot.storage import elicitation_rows as rows
from bot.storage.claims import own
from bot.storage.pg_notify import notify_turn
from bot.storage.turn_completion import lock_turn, mark_view_stale, requeue
from bot.storage.turn_reader import read_record

TOO_LATE = "It timed out before that."


def ask(connection: sa.Connection, held: Claim, n: int, new: Sequence[Elicitation], *, state: str | None) -> TurnRecord:
    """A call wants to know something before it is sent again. Raises LostLease and Stopped."""
    own(connection, held)
    rows.ask(connection, held.turn_id, n, new, state)
    mark_view_stale(connection, held.turn_id)
    return read_record(connection, held.turn_id)


def ask_meanwhile(connection: sa.Connection, held: Claim, n: int, new: Elicitation) -> TurnRecord:
    """A call wants to know something while it is under way. Raises LostLease and Stopped."""
    own(connection, held)
    rows.ask_meanwhile(connection, held.turn_id, n, new, held.fence)
    mark_view_stale(connection, held.turn_id)
    return read_record(connection, held.turn_id)


def withdraw(connection: sa.Connection, held: Claim, elicitation_id: str, reason: str) -> TurnRecord:
    """Wait no more for an answer, unless there is one. Raises LostLease and Stopped."""
    own(connection, held)
    rows.withdraw(connection, elicitation_id, reason)
    mark_view_stale(connection, held.turn_id)
    return read_record(connection, held.turn_id)


def get_elicitation(connection: sa.Connection, elicitation_id: str) -> OpenElicitation | None:
    """A question, and the call it is about."""
    row = rows.find(connection, elicitation_id)
    if row is None:
        return None
    record = read_record(connection, row.turn_id)
    step = next(step for step in record.calls if step.n == row.n)
    return OpenElicitation(record.turn, step, next(each for each in step.elicitations if each.id == elicitation_id))


def answer(
    connection: sa.Connection, elicitation_id: str, reply: ElicitationResult, by: Author
) -> ElicitationAnswered | AnswerRejected:
    """Take an answer if nobody was faster. Run a second time by the same person it is still the one that counts."""
    row = rows.find(connection, elicitation_id)
    if row is None:
        return ApprovalNotFound()
    lock_turn(connection, row.turn_id)
    # Read again under the lock: somebody may have been faster.
    row = rows.find(connection, elicitation_id)
    if row is None:
        return ApprovalNotFound()
    if row.status != "open":
        same = row.answered_by == by.name and (row.status, row.answer) == (reply.action, rows.content_of(reply))
        return ElicitationAnswered(reply.action) if same else AlreadyDecided(_how(row))
    if row.overdue:
        return AlreadyDecided(TOO_LATE)
    rows.close(connection, elicitation_id, reply, by.name)
    requeue(connection, row.turn_id)
    mark_view_stale(connection, row.turn_id)
    audit.record(
        connection,
        "answered",
        by.principal,
        turn_id=row.turn_id,
        step=row.n,
        elicitation=elicitation_id,
        action=reply.action.value,
    )
    notify_turn(connection, row.turn_id)
    return ElicitationAnswered(reply.action)


def _how(row: Any) -> str:
    match row.status:
        case ElicitationAction.ACCEPT:
            return f"{row.answered_by} has answered it already."
        case ElicitationAction.DECLINE if row.answered_by:
            return f"{row.answered_by} has declined it already."
        case _:
            return row.reason or "The server needs no answer any more."
