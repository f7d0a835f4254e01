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

from bot.domain.approvals import (
    NO_EVIDENCE,
    NOBODY_ELSE,
    ApprovedTogether,
    ApproverEvidence,
    Decision,
    DecisionResult,
    Portion,
    Revision,
)
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.elicitation_answers import AnswerRejected, ElicitationAnswered, OpenElicitation
from bot.domain.elicitations import Elicitation, ElicitationRequest, ElicitationResult
from bot.domain.grants import Grant
from bot.domain.history import History, HistorySummary
from bot.domain.messages import ToolResult
from bot.domain.tools import CallNeedsInput
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
from bot.domain.usage import NO_PRICES, PricedUsage, PriceList, UsageEntry, UsageKind
from bot.domain.views import MessageRefs, PostedMessage, TurnView
from bot.domain.wakeups import Wakeup
from bot.errors import LostLease, QueueFull, TurnInterrupted
from bot.storage import (
    approval_views,
    approvals,
    audit_calls,
    claims,
    deliveries,
    elicitations,
    files,
    grants,
    inbox,
    reminders,
    retention,
    turn_reader,
    turn_steps,
    usage_rows,
)
from bot.storage.database import PATIENCE_SECONDS, Database
from bot.storage.history_cache import HistoryCache
from bot.storage.record_cache import RecordCache
from bot.storage.turn_completion import LEASE_SECONDS

P = ParamSpec("P")
T = TypeVar("T")

STAMINA_SECONDS = 300.0
"""How long whoever drives a turn waits for a database that is away: what a tool returned must not get lost."""
AT_ONCE = 0.0
"""For what is asked again in a moment anyway."""

Listen = Callable[[Callable[[Wakeup], None]], Awaitable[None]]


async def _hear_nobody(_hear: Callable[[Wakeup], None]) -> None:
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
        self._in_hand = RecordCache()
        self._arriving: set[str] = set()
        self._ended = HistoryCache()
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
            return self._accepted(await self._run(inbox.enqueue, message, turn_id, self._limits))
        except (inbox.Duplicate, IntegrityError):
            known = await self._run(inbox.find_duplicate, message, turn_id)
            if known is not None:
                return known
            return self._accepted(await self._run(inbox.enqueue, message, turn_id, self._limits))

    async def enqueue_and_claim(self, message: InboundMessage) -> tuple[Receipt, Claim | None]:
        """Make a turn of a message, unless it was seen before, and claim it, unless it has to wait. Raises
        QueueFull.
        """
        turn_id = uuid.uuid4().hex
        message = _told_apart(message, turn_id)
        # Until whoever asked has the claim, a look round must not find the turn and claim it once more.
        self._arriving.add(turn_id)
        try:
            receipt, claim = await self._run(inbox.take_in, message, turn_id, self.me, self._limits)
            return self._accepted(receipt), claim
        except (inbox.Duplicate, IntegrityError):
            known = await self._run(inbox.find_duplicate, message, turn_id)
            return known if known is not None else await self.enqueue(message), None
        finally:
            self._arriving.discard(turn_id)

    def _accepted(self, receipt: Receipt | None) -> Receipt:
        if receipt is None:
            raise QueueFull(self._limits.queued)
        return receipt

    async def decide(self, decision: Decision, signing: ApproverEvidence = NO_EVIDENCE) -> DecisionResult:
        """Compare-and-set on the approval's id and revision."""
        return await self._run(approvals.decide, decision, uuid.uuid4().hex, signing)

    async def grant(
        self,
        decision: Decision,
        grant: Grant,
        signing: ApproverEvidence = NO_EVIDENCE,
        following: ApprovedTogether = NOBODY_ELSE,
    ) -> DecisionResult:
        """Approve a call and keep a grant with it."""
        return await self._run(
            grants.approve_with_grant, decision, grant, uuid.uuid4().hex, signing, following=following
        )

    async def take_reminders(self, reaches: Sequence[str], limit: int) -> Sequence[tuple[Turn, ToolStep]]:
        """Take in hand what nobody has been reminded of yet."""
        return await self._run(reminders.claim_due, reaches, limit)

    async def record_rejection(self, approval_id: str, by: Author, reason: str) -> None:
        """Put on record that somebody tried to decide who may not."""
        await self._run(audit_calls.record_refused, approval_id, by, reason)

    async def revise(self, revision: Revision) -> bool:
        """Ask for a signature on other arguments."""
        return await self._run(approvals.revise, revision)

    async def record_view(self, approval_id: str, revision: int, portion: Portion, by: Author) -> bool:
        """Record that somebody opens a page of a whole call."""
        return await self._run(approval_views.record_view, approval_id, revision, portion, by)

    async def get_approval(self, approval_id: str) -> tuple[Turn, ToolStep] | None:
        """The turn and the step an approval belongs to."""
        return await self._run(turn_reader.read_approval, approval_id)

    async def get_elicitation(self, elicitation_id: str) -> OpenElicitation | None:
        """What a server has asked back, and the call it is about."""
        return await self._run(elicitations.get_elicitation, elicitation_id)

    async def answer_elicitation(
        self, elicitation_id: str, reply: ElicitationResult, by: Author
    ) -> ElicitationAnswered | AnswerRejected:
        """Take an answer, if it is the first."""
        return await self._run(elicitations.answer, elicitation_id, reply, by)

    async def stop(self, turn_id: str, by: Author) -> bool:
        """End a turn that nobody drives, or ask its owner to."""
        return await self._run(inbox.stop, turn_id, by)

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
            self._in_hand.pop(each)
        await self._run(claims.release, held)

    async def listen(self, hear: Callable[[Wakeup], None]) -> None:
        """Hear what other processes call."""
        await self._listen(hear)

    async def resume(self, held: Claim) -> TurnRecord:
        """Settle what was left behind and read the turn."""
        return self._in_hand.put(held, await self._drive(turn_steps.resume, held))

    async def append(self, held: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply and its calls."""
        charges = self._charges([reply] if reply else [])
        known = self._in_hand.pop(held)
        written = await self._drive(turn_steps.append, held, reply, calls, known=known, charges=charges)
        return self._in_hand.put(held, _uninterrupted(written))

    async def start_call(self, held: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call."""
        known = self._in_hand.pop(held)
        return self._in_hand.put(held, await self._drive(turn_steps.start_call, held, n, known=known))

    async def suspend_for_elicitation(
        self, held: Claim, n: int, asked: CallNeedsInput, expires_in: float | None
    ) -> TurnRecord:
        """Record that a call waits for answers before it is sent again."""
        new = [Elicitation(uuid.uuid4().hex, each, expires_in=expires_in) for each in asked.questions]
        return await self._drive(elicitations.ask, held, n, new, state=asked.state)

    async def open_elicitation(
        self, held: Claim, n: int, question: ElicitationRequest, expires_in: float | None
    ) -> tuple[TurnRecord, str]:
        """Record that a call that is under way waits for an answer."""
        new = Elicitation(uuid.uuid4().hex, question, expires_in=expires_in)
        return await self._drive(elicitations.ask_meanwhile, held, n, new), new.id

    async def cancel_elicitation(self, held: Claim, elicitation_id: str, reason: str) -> TurnRecord:
        """Wait no more for an answer."""
        return await self._drive(elicitations.withdraw, held, elicitation_id, reason)

    async def finish_call(
        self, held: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record how a call ended."""
        try:
            known = self._in_hand.pop(held)
            written = await self._drive(turn_steps.finish_call, held, n, status, result, seconds=seconds, known=known)
            return self._in_hand.put(held, written)
        except LostLease:
            await self._drive(turn_steps.keep_late_result, held, n, result)
            raise

    async def park(self, held: Claim) -> TurnRecord | None:
        """Give the turn back while people think."""
        self._in_hand.pop(held)
        return await self._drive(turn_steps.park, held)

    async def finish(self, held: Claim, status: TurnStatus, last: Sequence[Step], failure: str) -> TurnRecord:
        """End the turn."""
        charges = self._charges(last)
        known = self._in_hand.pop(held)
        written = _uninterrupted(
            await self._drive(turn_steps.finish, held, status, last, failure, known=known, charges=charges)
        )
        self._ended.put([written])
        return self._in_hand.put(held, written)

    async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
        """Count what was asked of models."""
        await self._drive(usage_rows.add_all, [(held, self._charge(use)) for held, use in uses])

    async def fail(self, held: Claim, failure: str) -> None:
        """End the turn unread."""
        self._in_hand.pop(held)
        await self._drive(turn_steps.fail, held, failure)

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> History:
        """Earlier turns of a conversation, and what stands for the oldest."""
        if before <= 1:
            return History()
        return await self._run(turn_reader.read_history, conversation, before, limit, self._ended)

    async def save_summary(self, held: Claim, summary: HistorySummary, past: History) -> None:
        """Keep what stands for the oldest turns."""
        await self._drive(turn_steps.save_summary, held, summary, past)

    async def get_call(self, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """A call in a conversation, by its place there."""
        return await self._run(turn_reader.read_call_at, conversation, seq, n)

    async def recent_turns(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        """The last turns of a conversation."""
        return await self._run(deliveries.read_recent, conversation, limit)

    async def latest_conversation(self, reach: str) -> ConversationKey | None:
        """The conversation in which something was said last."""
        return await self._run(turn_reader.read_latest, reach)

    async def get_view(self, turn_id: str) -> TurnView:
        """The turn as it should be drawn."""
        return await self._run(deliveries.read_view, turn_id)

    async def get_file(self, turn_id: str, file_id: str) -> bytes:
        """The bytes of a file that a tool returned in a turn."""
        return await self._run(files.read_file, turn_id, file_id)

    async def stale_views(self, reach: str, limit: int) -> Sequence[str]:
        """Turns whose drawing is behind and in nobody's hands."""
        return await self._at_once(deliveries.stale_views, self.me, reach, limit)

    async def acquire_delivery(self, turn_id: str, revision: int) -> MessageRefs:
        """Take the drawing of a turn in hand."""
        return await self._run(deliveries.acquire, self.me, turn_id, revision)

    async def renew_deliveries(self, turn_ids: Collection[str]) -> frozenset[str]:
        """Renew the leases on drawings in hand."""
        return await self._urgently(deliveries.renew, self.me, turn_ids)

    async def release_delivery(self, turn_id: str) -> None:
        """Let go of a drawing."""
        await self._run(deliveries.release, self.me, turn_id)

    async def save_message_ref(self, turn_id: str, drawn: PostedMessage) -> None:
        """Remember where a slot was drawn."""
        await self._drive(deliveries.save_message_ref, self.me, turn_id, drawn)

    async def mark_delivered(self, turn_id: str, revision: int) -> bool:
        """Everything up to `revision` is out; whether the drawing is still in hand."""
        return await self._drive(deliveries.mark_drawn, self.me, turn_id, revision)

    async def retry_delivery_at(self, turn_id: str, seconds: float) -> None:
        """Try the drawing again later."""
        await self._run(deliveries.postpone, turn_id, seconds)

    async def give_up_delivery(self, turn_id: str, revision: int, reason: str) -> bool:
        """Give up drawing what is wanted so far; whether calls were turned down with it."""
        return await self._run(deliveries.give_up, self.me, turn_id, revision, reason)

    async def try_start_job(self, name: str, seconds: float) -> bool:
        """Whether this process is the one to do a job now."""
        return await self._at_once(retention.try_start_job, name, seconds)

    async def delete_old(self, seconds: float, limit: int) -> int:
        """Delete turns that ended long ago."""
        return await self._run(retention.delete_old, seconds, limit)

    async def delete_conversation(self, conversation: ConversationKey, by: Author) -> bool:
        """Delete a conversation with everything of it but the audit."""
        return await self._run(retention.delete_conversation, conversation, by)

    def _charges(self, new: Sequence[Step]) -> Sequence[PricedUsage]:
        return [
            self._charge(step.use or UsageEntry(uuid.uuid4().hex, step.n, UsageKind.REPLY, step.model, step.usage))
            for step in new
            if isinstance(step, ModelStep)
        ]

    def _charge(self, use: UsageEntry) -> PricedUsage:
        return PricedUsage(use, self._prices.cost(use.model, use.usage), self._prices.currency)

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
