"""The turn log on a database: every method one transaction, see `bot.ports.TurnLog` for what each promises."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from bot.domain.answering import Answered, Inquiry, NotAnswerable
from bot.domain.approvals import ALONE, NOBODY_ELSE, Decision, Following, Portion, Revision, Settlement, Signing
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.elicitations import Elicitation, Elicited, ServerQuestion
from bot.domain.grants import Grant
from bot.domain.messages import ToolResult
from bot.domain.past import Past, Summary
from bot.domain.rings import Ring
from bot.domain.tools import AsksBack
from bot.domain.turns import (
    NO_TURN_LIMITS,
    Claim,
    ModelStep,
    Receipt,
    Step,
    StepStatus,
    ToolStep,
    Turn,
    TurnLimits,
    TurnRecord,
    TurnStatus,
)
from bot.domain.usage import NO_PRICES, Charge, PriceList, UsageKind, Use
from bot.domain.views import Drawn, Refs, TurnView
from bot.errors import LostLease, QueueFull, TurnInterrupted
from bot.storage import (
    call_trail,
    claims,
    deciding,
    drawings,
    eliciting,
    files,
    front_door,
    granting,
    keeping,
    records,
    reminding,
    transcript,
    usage_rows,
    viewing,
)
from bot.storage.database import PATIENCE_SECONDS, Database
from bot.storage.ended_turns import EndedTurns
from bot.storage.endings import LEASE_SECONDS
from bot.storage.in_hand import InHand

P = ParamSpec("P")
T = TypeVar("T")

STAMINA_SECONDS = 300.0
"""How long whoever drives a turn waits for a database that is away: what a tool returned must not get lost."""
AT_ONCE = 0.0
"""For what is asked again in a moment anyway."""

Listen = Callable[[Callable[[Ring], None]], Awaitable[None]]


async def _hear_nobody(_hear: Callable[[Ring], None]) -> None:
    """There is no other process to hear from."""
    await asyncio.Event().wait()


class SqlTurnLog:
    """Turns on a database, claimed under the name `me`, which is new at every start: a dead process never comes
    back as itself. `prices` are what models cost now; `limits` are those on the turns of one person.
    """

    def __init__(
        self,
        database: Database,
        listen: Listen = _hear_nobody,
        *,
        prices: PriceList = NO_PRICES,
        limits: TurnLimits = NO_TURN_LIMITS,
    ) -> None:
        self._database = database
        self._listen = listen
        self._in_hand = InHand()
        self._arriving: set[str] = set()
        self._ended = EndedTurns()
        self._prices = prices
        self._limits = limits
        self.lease_seconds = LEASE_SECONDS if database.shared else None
        self.me = f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    async def adopt_orphans(self) -> None:
        """Take over what a dead process was driving. Only for the process that holds the lock file."""
        await self._run(claims.adopt_orphans)

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Make a turn of a message, unless it was seen before. Raises QueueFull."""
        turn_id = uuid.uuid4().hex
        message = _told_apart(message, turn_id)
        try:
            return self._accepted(await self._run(front_door.enqueue, message, turn_id, self._limits))
        except (front_door.SeenBefore, IntegrityError):
            known = await self._run(front_door.seen, message, turn_id)
            if known is not None:
                return known
            return self._accepted(await self._run(front_door.enqueue, message, turn_id, self._limits))

    async def take_in(self, message: InboundMessage) -> tuple[Receipt, Claim | None]:
        """Make a turn of a message, unless it was seen before, and claim it, unless it has to wait. Raises
        QueueFull.
        """
        turn_id = uuid.uuid4().hex
        message = _told_apart(message, turn_id)
        # Until whoever asked has the claim, a look round must not find the turn and claim it once more.
        self._arriving.add(turn_id)
        try:
            receipt, claim = await self._run(front_door.take_in, message, turn_id, self.me, self._limits)
            return self._accepted(receipt), claim
        except (front_door.SeenBefore, IntegrityError):
            known = await self._run(front_door.seen, message, turn_id)
            return known if known is not None else await self.enqueue(message), None
        finally:
            self._arriving.discard(turn_id)

    def _accepted(self, receipt: Receipt | None) -> Receipt:
        if receipt is None:
            raise QueueFull(self._limits.queued)
        return receipt

    async def decide(self, decision: Decision, signing: Signing = ALONE) -> Settlement:
        """Compare-and-set on the approval's id and revision."""
        return await self._run(deciding.decide, decision, uuid.uuid4().hex, signing)

    async def grant(
        self, decision: Decision, grant: Grant, signing: Signing = ALONE, following: Following = NOBODY_ELSE
    ) -> Settlement:
        """Approve a call and keep a grant with it."""
        return await self._run(
            granting.decide_and_grant, decision, grant, uuid.uuid4().hex, signing, following=following
        )

    async def take_reminders(self, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
        """Take in hand what nobody has been reminded of yet."""
        return await self._run(reminding.take, reaches, limit)

    async def refuse(self, approval_id: str, by: Author, reason: str) -> None:
        """Put on record that somebody tried to decide who may not."""
        await self._run(call_trail.record_refused, approval_id, by, reason)

    async def revise(self, revision: Revision) -> bool:
        """Ask for a signature on other arguments."""
        return await self._run(deciding.revise, revision)

    async def record_view(self, approval_id: str, revision: int, portion: Portion, by: Author) -> bool:
        """Record that somebody opens a page of a whole call."""
        return await self._run(viewing.record_view, approval_id, revision, portion, by)

    async def approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """The turn and the step an approval belongs to."""
        return await self._run(records.read_approval, approval_id)

    async def inquiry(self, elicitation_id: str) -> Inquiry | None:
        """What a server has asked back, and the call it is about."""
        return await self._run(eliciting.inquiry, elicitation_id)

    async def answer(self, elicitation_id: str, reply: Elicited, by: Author) -> Answered | NotAnswerable:
        """Take an answer, if it is the first."""
        return await self._run(eliciting.answer, elicitation_id, reply, by)

    async def stop(self, turn_id: str, by: Author) -> bool:
        """End a turn that nobody drives, or ask its owner to."""
        return await self._run(front_door.stop, turn_id, by)

    async def claim(self, limit: int, holding: Collection[str] = (), reaches: Sequence[str] = ("",)) -> Sequence[Claim]:
        """Take turns that can go on now."""
        if not reaches:
            return ()
        reached = tuple(reaches)
        try:
            return await self._at_once(
                claims.claim, self.me, limit, reached, self._arriving.union(holding), limits=self._limits
            )
        except IntegrityError:
            # The database refused a second active turn in some conversation: one at a time, the others go through.
            with contextlib.suppress(IntegrityError):
                # Others may be arriving by now.
                return await self._at_once(
                    claims.claim, self.me, 1, reached, self._arriving.union(holding), limits=self._limits
                )
            return ()

    async def renew(self, held: Sequence[Claim]) -> frozenset[str]:
        """Renew leases; the turns that are still ours and not to be stopped."""
        return await self._urgently(claims.renew, self.me, held)

    async def release(self, held: Sequence[Claim]) -> None:
        """Give turns back."""
        for each in held:
            self._in_hand.take(each)
        await self._run(claims.release, held)

    async def listen(self, hear: Callable[[Ring], None]) -> None:
        """Hear what other processes call."""
        await self._listen(hear)

    async def resume(self, held: Claim) -> TurnRecord:
        """Settle what was left behind and read the turn."""
        return self._in_hand.keep(held, await self._drive(transcript.resume, held))

    async def append(self, held: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply and its calls."""
        charges = self._charges([reply] if reply else [])
        known = self._in_hand.take(held)
        written = await self._drive(transcript.append, held, reply, calls, known=known, charges=charges)
        return self._in_hand.keep(held, _uninterrupted(written))

    async def begin(self, held: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call."""
        known = self._in_hand.take(held)
        return self._in_hand.keep(held, await self._drive(transcript.begin, held, n, known=known))

    async def ask(self, held: Claim, n: int, asked: AsksBack, expires_in: float | None) -> TurnRecord:
        """Record that a call waits for answers before it is sent again."""
        new = [Elicitation(uuid.uuid4().hex, each, expires_in=expires_in) for each in asked.questions]
        return await self._drive(eliciting.ask, held, n, new, state=asked.state)

    async def ask_meanwhile(
        self, held: Claim, n: int, question: ServerQuestion, expires_in: float | None
    ) -> tuple[TurnRecord, str]:
        """Record that a call that is under way waits for an answer."""
        new = Elicitation(uuid.uuid4().hex, question, expires_in=expires_in)
        return await self._drive(eliciting.ask_meanwhile, held, n, new), new.id

    async def withdraw(self, held: Claim, elicitation_id: str, reason: str) -> TurnRecord:
        """Wait no more for an answer."""
        return await self._drive(eliciting.withdraw, held, elicitation_id, reason)

    async def end(
        self, held: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record how a call ended."""
        try:
            known = self._in_hand.take(held)
            written = await self._drive(transcript.end, held, n, status, result, seconds=seconds, known=known)
            return self._in_hand.keep(held, written)
        except LostLease:
            await self._drive(transcript.keep_late_result, held, n, result)
            raise

    async def park(self, held: Claim) -> TurnRecord | None:
        """Give the turn back while people think."""
        self._in_hand.take(held)
        return await self._drive(transcript.park, held)

    async def finish(self, held: Claim, status: TurnStatus, last: Sequence[Step], failure: str) -> TurnRecord:
        """End the turn."""
        charges = self._charges(last)
        known = self._in_hand.take(held)
        written = _uninterrupted(
            await self._drive(transcript.finish, held, status, last, failure, known=known, charges=charges)
        )
        self._ended.keep([written])
        return self._in_hand.keep(held, written)

    async def charge(self, uses: Sequence[tuple[Claim, Use]]) -> None:
        """Count what was asked of models."""
        await self._drive(usage_rows.add_all, [(held, self._charge(use)) for held, use in uses])

    async def fail(self, held: Claim, failure: str) -> None:
        """End the turn unread."""
        self._in_hand.take(held)
        await self._drive(transcript.fail, held, failure)

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> Past:
        """Earlier turns of a conversation, and what stands for the oldest."""
        if before <= 1:
            return Past()
        return await self._run(records.read_history, conversation, before, limit, self._ended)

    async def sum_up(self, held: Claim, summary: Summary, past: Past) -> None:
        """Keep what stands for the oldest turns."""
        await self._drive(transcript.sum_up, held, summary, past)

    async def call_at(self, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """A call in a conversation, by its place there."""
        return await self._run(records.read_call_at, conversation, seq, n)

    async def recent(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation."""
        return await self._run(drawings.read_recent, conversation, limit)

    async def latest(self, reach: str) -> ConversationKey | None:
        """The conversation in which something was said last."""
        return await self._run(records.read_latest, reach)

    async def view(self, turn_id: str) -> TurnView:
        """The turn as it should be drawn."""
        return await self._run(drawings.read_view, turn_id)

    async def file(self, turn_id: str, file_id: str) -> bytes:
        """The bytes of a file that a tool returned in a turn."""
        return await self._run(files.read_file, turn_id, file_id)

    async def undrawn(self, reach: str, limit: int) -> Sequence[str]:
        """Turns whose drawing is behind and in nobody's hands."""
        return await self._at_once(drawings.undrawn, self.me, reach, limit)

    async def take(self, turn_id: str, revision: int) -> Refs:
        """Take the drawing of a turn in hand."""
        return await self._run(drawings.take, self.me, turn_id, revision)

    async def hold(self, turn_ids: Collection[str]) -> frozenset[str]:
        """Renew the leases on drawings in hand."""
        return await self._urgently(drawings.hold, self.me, turn_ids)

    async def put_down(self, turn_id: str) -> None:
        """Let go of a drawing."""
        await self._run(drawings.put_down, self.me, turn_id)

    async def keep(self, turn_id: str, drawn: Drawn) -> None:
        """Remember where a slot was drawn."""
        await self._drive(drawings.keep, self.me, turn_id, drawn)

    async def drawn(self, turn_id: str, revision: int) -> bool:
        """Everything up to `revision` is out; whether the drawing is still in hand."""
        return await self._drive(drawings.mark_drawn, self.me, turn_id, revision)

    async def postpone(self, turn_id: str, seconds: float) -> None:
        """Try the drawing again later."""
        await self._run(drawings.postpone, turn_id, seconds)

    async def abandon(self, turn_id: str, revision: int, reason: str) -> bool:
        """Give up drawing what is wanted so far; whether calls were turned down with it."""
        return await self._run(drawings.abandon, self.me, turn_id, revision, reason)

    async def take_job(self, name: str, seconds: float) -> bool:
        """Whether this process is the one to do a job now."""
        return await self._at_once(keeping.take_job, name, seconds)

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete turns that ended long ago."""
        return await self._run(keeping.delete_old, seconds, limit)

    async def delete_conversation(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit."""
        return await self._run(keeping.delete_conversation, conversation, by)

    def _charges(self, new: Sequence[Step]) -> Sequence[Charge]:
        return [
            self._charge(step.use or Use(uuid.uuid4().hex, step.n, UsageKind.REPLY, step.model, step.usage))
            for step in new
            if isinstance(step, ModelStep)
        ]

    def _charge(self, use: Use) -> Charge:
        return Charge(use, self._prices.cost(use.model, use.usage), self._prices.currency)

    async def _run(
        self, transaction: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._within(PATIENCE_SECONDS, transaction, *args, **kwargs)

    async def _drive(
        self, transaction: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._within(STAMINA_SECONDS, transaction, *args, **kwargs)

    async def _at_once(
        self, transaction: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._within(AT_ONCE, transaction, *args, **kwargs)

    async def _urgently(
        self, transaction: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._database.run(
            lambda connection: transaction(connection, *args, **kwargs), patience=AT_ONCE, urgent=True
        )

    async def _within(
        self,
        patience: float,
        transaction: Callable[Concatenate[sa.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._database.run(lambda connection: transaction(connection, *args, **kwargs), patience=patience)


def _told_apart(message: InboundMessage, turn_id: str) -> InboundMessage:
    """With a key at least by which it is known again if the answer to its COMMIT gets lost."""
    return message if message.keys else dataclasses.replace(message, keys=(f"turn:{turn_id}",))


def _uninterrupted(written: TurnRecord | TurnInterrupted) -> TurnRecord:
    if isinstance(written, TurnInterrupted):
        raise written
    return written
