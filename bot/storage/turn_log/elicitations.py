"""Transactions of elicitations: requested by the turn's owner, answered by any process, withdrawn if unneeded.

Each is safe to run twice. Answers hold values that a user has typed; the audit has none of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound
from bot.domain.conversations import Author
from bot.domain.elicitations import Elicitation, ElicitationAction, ElicitationRequest, ElicitationResult
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import Claim, TurnRecord, WakeupKind
from bot.ports.platform import AnswerRejected, ElicitationAnswered, OpenElicitation
from bot.storage import audit
from bot.storage.database import OWNER_RETRY_SECONDS, Store, send_wakeup, transaction
from bot.storage.turn_log import elicitation_rows as rows
from bot.storage.turn_log.records import read_record
from bot.storage.turn_log.states import check_claim, lock_turn, mark_view_stale, requeue

TOO_LATE = "It had expired."


class SqlElicitations(Store):
    """Elicitations of a database; see `bot.ports.ElicitationLog`. Part of `SqlTurnLog`."""

    async def suspend_for_elicitation(
        self, claim: Claim, n: int, needed: CallNeedsInput, expires_in: float | None
    ) -> TurnRecord:
        """Save the elicitations of a call that is sent again with the answers. Raises LostLease and Stopped."""
        new = [Elicitation(uuid.uuid4().hex, request, expires_in=expires_in) for request in needed.questions]
        return await self._change(
            claim, lambda connection: rows.add_elicitations(connection, claim.turn_id, n, new, needed.state)
        )

    async def open_elicitation(
        self, claim: Claim, n: int, question: ElicitationRequest, expires_in: float | None
    ) -> tuple[TurnRecord, str]:
        """Save the elicitation of a running call. Return its id with the record. Raises LostLease and Stopped."""
        new = Elicitation(uuid.uuid4().hex, question, expires_in=expires_in)
        record = await self._change(
            claim, lambda connection: rows.ask_meanwhile(connection, claim.turn_id, n, new, claim.fencing_token)
        )
        return record, new.id

    async def cancel_elicitation(self, claim: Claim, elicitation_id: str, reason: str) -> TurnRecord:
        """Withdraw an elicitation unless it is answered. Raises LostLease and Stopped."""
        return await self._change(
            claim, lambda connection: rows.withdraw_elicitation(connection, elicitation_id, reason)
        )

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def _change(self, connection: sa.Connection, claim: Claim, change: Callable[[sa.Connection], None]) -> TurnRecord:
        check_claim(connection, claim)
        change(connection)
        mark_view_stale(connection, claim.turn_id)
        return read_record(connection, claim.turn_id)

    @transaction
    def get_elicitation(self, connection: sa.Connection, elicitation_id: str) -> OpenElicitation | None:
        """Return an elicitation and its call."""
        row = rows.find_row(connection, elicitation_id)
        if row is None:
            return None
        record = read_record(connection, row.turn_id)
        step = next(step for step in record.calls if step.n == row.n)
        elicitation = next(elicitation for elicitation in step.elicitations if elicitation.id == elicitation_id)
        return OpenElicitation(record.turn, step, elicitation)

    @transaction
    def answer_elicitation(
        self, connection: sa.Connection, elicitation_id: str, reply: ElicitationResult, by: Author
    ) -> ElicitationAnswered | AnswerRejected:
        """Save an answer if the elicitation is open. A second run by the same user returns the same result."""
        row = rows.find_row(connection, elicitation_id)
        if row is None:
            return ApprovalNotFound()
        lock_turn(connection, row.turn_id)
        # Re-read under the lock: another answer may have been faster.
        row = rows.find_row(connection, elicitation_id)
        if row is None:
            return ApprovalNotFound()
        if row.status != "open":
            same = row.answered_by == by.name and (row.status, row.answer) == (reply.action, rows.content_of(reply))
            return ElicitationAnswered(reply.action) if same else AlreadyDecided(_outcome_text(row))
        if row.overdue:
            return AlreadyDecided(TOO_LATE)
        rows.close_elicitation(connection, elicitation_id, reply, by.name)
        requeue(connection, row.turn_id)
        mark_view_stale(connection, row.turn_id)
        facts = {"elicitation": elicitation_id, "action": reply.action.value}
        audit.record(connection, "answered", by.principal, turn_id=row.turn_id, step=row.n, **facts)
        send_wakeup(connection, WakeupKind.APPROVAL_DECIDED, row.turn_id)
        return ElicitationAnswered(reply.action)


def _outcome_text(row: Any) -> str:
    match row.status:
        case ElicitationAction.ACCEPT:
            return f"{row.answered_by} has answered it already."
        case ElicitationAction.DECLINE if row.answered_by:
            return f"{row.answered_by} has declined it already."
        case _:
            return row.reason or "The server needs no answer any more."
