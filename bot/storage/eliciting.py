"""Transactions on what servers ask back: asked by whoever drives the turn, answered by any process, withdrawn when
nobody needs the answer any more.

Each can be run twice with the same effect. Answers are values that a person has typed: the audit has none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from bot.domain.answering import Answered, Inquiry, NotAnswerable
from bot.domain.approvals import AlreadySettled, NoSuchApproval
from bot.domain.conversations import Author
from bot.domain.elicitations import Action, Elicitation, Elicited
from bot.domain.turns import Claim, TurnRecord
from bot.storage import audit
from bot.storage import elicitation_rows as rows
from bot.storage.claims import own
from bot.storage.endings import go_on, lock_turn, show_change
from bot.storage.records import read_record
from bot.storage.ringing import ring_turn

TOO_LATE = "It timed out before that."


def ask(connection: sa.Connection, held: Claim, n: int, new: Sequence[Elicitation], *, state: str | None) -> TurnRecord:
    """A call wants to know something before it is sent again. Raises LostLease and Stopped."""
    own(connection, held)
    rows.ask(connection, held.turn_id, n, new, state)
    show_change(connection, held.turn_id)
    return read_record(connection, held.turn_id)


def ask_meanwhile(connection: sa.Connection, held: Claim, n: int, new: Elicitation) -> TurnRecord:
    """A call wants to know something while it is under way. Raises LostLease and Stopped."""
    own(connection, held)
    rows.ask_meanwhile(connection, held.turn_id, n, new, held.fence)
    show_change(connection, held.turn_id)
    return read_record(connection, held.turn_id)


def withdraw(connection: sa.Connection, held: Claim, elicitation_id: str, reason: str) -> TurnRecord:
    """Wait no more for an answer, unless there is one. Raises LostLease and Stopped."""
    own(connection, held)
    rows.withdraw(connection, elicitation_id, reason)
    show_change(connection, held.turn_id)
    return read_record(connection, held.turn_id)


def inquiry(connection: sa.Connection, elicitation_id: str) -> Inquiry | None:
    """A question, and the call it is about."""
    row = rows.found(connection, elicitation_id)
    if row is None:
        return None
    record = read_record(connection, row.turn_id)
    step = next(step for step in record.calls if step.n == row.n)
    return Inquiry(record.turn, step, next(each for each in step.elicitations if each.id == elicitation_id))


def answer(connection: sa.Connection, elicitation_id: str, reply: Elicited, by: Author) -> Answered | NotAnswerable:
    """Take an answer if nobody was faster. Run a second time by the same person it is still the one that counts."""
    row = rows.found(connection, elicitation_id)
    if row is None:
        return NoSuchApproval()
    lock_turn(connection, row.turn_id)
    # Read again under the lock: somebody may have been faster.
    row = rows.found(connection, elicitation_id)
    if row is None:
        return NoSuchApproval()
    if row.status != "open":
        same = row.answered_by == by.name and (row.status, row.answer) == (reply.action, rows.content_of(reply))
        return Answered(reply.action) if same else AlreadySettled(_how(row))
    if row.overdue:
        return AlreadySettled(TOO_LATE)
    rows.close(connection, elicitation_id, reply, by.name)
    go_on(connection, row.turn_id)
    show_change(connection, row.turn_id)
    audit.record(
        connection,
        "answered",
        by.principal,
        turn_id=row.turn_id,
        step=row.n,
        elicitation=elicitation_id,
        action=reply.action.value,
    )
    ring_turn(connection, row.turn_id)
    return Answered(reply.action)


def _how(row: Any) -> str:
    match row.status:
        case Action.ACCEPT:
            return f"{row.answered_by} has answered it already."
        case Action.DECLINE if row.answered_by:
            return f"{row.answered_by} has declined it already."
        case _:
            return row.reason or "The server needs no answer any more."
