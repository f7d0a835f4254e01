"""What servers ask back while the calls of one turn are run: put on record, so that people see it, and waited for where
the call is under way.

Called by the turn. Whoever answers writes to the turn log; the turn hears of it as it hears of signatures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from bot.domain.approvals import AlreadyDecided, NotAllowed
from bot.domain.conversations import Member
from bot.domain.elicitation_answers import AnswerRejected, InvalidAnswer, OpenElicitation
from bot.domain.elicitations import (
    CANCELLED,
    MOST_ROUNDS,
    Elicitation,
    ElicitationAction,
    ElicitationRequest,
    ElicitationResult,
    FormMode,
    UrlMode,
)
from bot.domain.tools import CallNeedsInput
from bot.domain.turns import Claim, ToolStep, TurnRecord
from bot.ports import Toolbox, TurnLog

TOO_MANY = f"The server asked back more than {MOST_ROUNDS} times, so the call was given up."
LATE = "Nobody answered in time."
NOT_YOURS = "Only {} can answer this: the call runs in their name."
NOT_WAITING = "The server needs no answer any more."


class PendingElicitations:
    """The questions of one turn. `seconds` is how long each waits for an answer, from when it is posted; None for as
    long as it takes.
    """

    def __init__(
        self, claim: Claim, log: TurnLog, seconds: float | None, on_record: Callable[[TurnRecord], None]
    ) -> None:
        self._claim = claim
        self._log = log
        self._seconds = seconds
        self._on_record = on_record
        self._record: TurnRecord | None = None
        self._news = asyncio.Event()

    def too_many(self, step: ToolStep) -> bool:
        """Whether a call has asked back often enough, or for what nobody may be asked: each such question is a card."""
        unasked = sum(not each.open and bool(each.reason) and not each.answered_by for each in step.elicitations)
        return max(unasked, *(each.round for each in step.elicitations), 0) >= MOST_ROUNDS

    async def save(self, n: int, asked: CallNeedsInput) -> TurnRecord:
        """Put on record what a call wants to know before it is sent again. Raises LostLease and Stopped."""
        return await self._log.suspend_for_elicitation(self._claim, n, asked, self._seconds)

    async def open(self, n: int, question: ElicitationRequest) -> ElicitationResult:
        """Ask while a call is under way, and wait for the answer. Raises LostLease and Stopped."""
        record, asked = await self._log.open_elicitation(self._claim, n, question, self._seconds)
        self._on_record(record)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                return await self._answer(asked)
        self._on_record(await self._log.cancel_elicitation(self._claim, asked, LATE))
        return (self._found(asked) or Elicitation(asked, question)).reply or CANCELLED

    def update(self, record: TurnRecord) -> None:
        """What is on disk now."""
        self._record = record
        self._news.set()

    async def _answer(self, asked: str) -> ElicitationResult:
        while True:
            self._news.clear()
            found = self._found(asked)
            if found is not None and found.reply is not None:
                return found.reply
            await self._news.wait()

    def _found(self, asked: str) -> Elicitation | None:
        calls = self._record.calls if self._record is not None else ()
        return next((each for step in calls for each in step.elicitations if each.id == asked), None)


def answer_rejection(inquiry: OpenElicitation, member: Member) -> AnswerRejected | None:
    """Why this person cannot answer a question now: it is for the one in whose name the call runs, and nobody else."""
    if member.author.principal != inquiry.turn.author.principal:
        return NotAllowed(NOT_YOURS.format(inquiry.turn.author.name or "whoever asked"))
    if not inquiry.elicitation.open or inquiry.turn.status.ended:
        by = inquiry.elicitation.answered_by
        return AlreadyDecided(f"{by} has answered it already." if by else inquiry.elicitation.reason or NOT_WAITING)
    return None


def invalid_answer(inquiry: OpenElicitation, reply: ElicitationResult, toolbox: Toolbox) -> InvalidAnswer | None:
    """What of an answer does not fit what was asked."""
    match inquiry.elicitation.question.ask:
        case FormMode(schema) if reply.action is ElicitationAction.ACCEPT:
            problems = tuple(toolbox.validate(schema, reply.content or {}))
            return InvalidAnswer(problems) if problems else None
        case FormMode() | UrlMode():
            return None
