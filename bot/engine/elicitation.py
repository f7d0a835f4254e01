"""Elicitations: stored for display, awaited while the call runs, and answered by the author of the turn.

Answers are written to the turn log; the turn reads them after a wakeup, like decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed
from bot.domain.conversations import Member
from bot.domain.elicitations import (
    CANCELLED,
    EXPIRED_REASON,
    MOST_ROUNDS,
    Elicitation,
    ElicitationAction,
    ElicitationRequest,
    ElicitationResult,
    FormMode,
)
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import Claim, ToolStep, TurnRecord
from bot.i18n import _, gettext_lazy
from bot.ports import ElicitationLog, Toolbox
from bot.ports.platform import AnswerRejected, AnswerResult, InvalidValues, OpenElicitation

TOO_MANY = gettext_lazy(
    "The server asked for input more than {count} times, so the call was cancelled.", count=MOST_ROUNDS
)
NOT_WAITING = gettext_lazy("The server needs no answer any more.")


class PendingElicitations:
    """Open elicitations of one turn. `seconds` is the time for an answer after posting; None for no limit."""

    def __init__(
        self, claim: Claim, log: ElicitationLog, seconds: float | None, on_record: Callable[[TurnRecord], None]
    ) -> None:
        self._claim = claim
        self._log = log
        self._seconds = seconds
        self._on_record = on_record
        self._record: TurnRecord | None = None
        self._updated = asyncio.Event()

    def too_many(self, step: ToolStep) -> bool:
        """Return True if a call has reached MOST_ROUNDS elicitations."""
        undelivered = sum(
            not elicitation.open and bool(elicitation.reason) and not elicitation.answered_by
            for elicitation in step.elicitations
        )
        return max(undelivered, *(elicitation.round for elicitation in step.elicitations), 0) >= MOST_ROUNDS

    async def save(self, n: int, elicitation_id: CallNeedsInput) -> TurnRecord:
        """Store an elicitation that ends the call, to be sent again with the answer. Raises LostLease and Stopped."""
        return await self._log.suspend_for_elicitation(self._claim, n, elicitation_id, self._seconds)

    async def open(self, n: int, question: ElicitationRequest) -> ElicitationResult:
        """Store an elicitation of a running call and wait for the answer. Raises LostLease and Stopped."""
        record, elicitation_id = await self._log.open_elicitation(self._claim, n, question, self._seconds)
        self._on_record(record)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                while True:
                    self._updated.clear()
                    elicitation = self._find(elicitation_id)
                    if elicitation is not None and elicitation.reply is not None:
                        return elicitation.reply
                    await self._updated.wait()
        self._on_record(await self._log.cancel_elicitation(self._claim, elicitation_id, EXPIRED_REASON))
        return (self._find(elicitation_id) or Elicitation(elicitation_id, question)).reply or CANCELLED

    def update(self, record: TurnRecord) -> None:
        """Adopt the turn's new record."""
        self._record = record
        self._updated.set()

    def _find(self, elicitation_id: str) -> Elicitation | None:
        calls = self._record.calls if self._record is not None else ()
        return next(
            (elicitation for step in calls for elicitation in step.elicitations if elicitation.id == elicitation_id),
            None,
        )


class ElicitationService:
    """Answers to the elicitations of all turns. `wake` gets the id of a turn with an answered elicitation."""

    def __init__(self, log: ElicitationLog, toolbox: Toolbox, wake: Callable[[str], None]) -> None:
        self._log = log
        self._toolbox = toolbox
        self._wake = wake

    async def get(self, elicitation_id: str, member: Member) -> OpenElicitation | AnswerRejected:
        """Return an open elicitation that this member may answer; or the reason why they cannot."""
        elicitation = await self._log.get_elicitation(elicitation_id)
        if elicitation is None:
            return ApprovalNotFound()
        # Only the author of the turn may answer.
        if member.author.principal != elicitation.turn.author.principal:
            asker = elicitation.turn.author.name or _("whoever asked")
            return NotAllowed(_("Only {asker} can answer this: the call runs in their name.", asker=asker))
        if not elicitation.elicitation.open or elicitation.turn.status.ended:
            by, reason = elicitation.elicitation.answered_by, elicitation.elicitation.reason
            return AlreadyDecided(_("{name} has answered it already.", name=by) if by else reason or NOT_WAITING)
        return elicitation

    async def answer(self, elicitation_id: str, result: ElicitationResult, member: Member) -> AnswerResult:
        """Answer an elicitation, if this member may, it is still open, and the values fit."""
        elicitation = await self.get(elicitation_id, member)
        if not isinstance(elicitation, OpenElicitation):
            return elicitation
        question = elicitation.elicitation.question.ask
        if isinstance(question, FormMode) and result.action is ElicitationAction.ACCEPT:
            errors = tuple(self._toolbox.validate(question.schema, result.content or {}))
            if errors:
                return InvalidValues(errors)
        answer = await self._log.answer_elicitation(elicitation_id, result, member.author)
        self._wake(elicitation.turn.id)
        return answer
