"""Turn log on a database: every method is one transaction, see `bot.ports.TurnLog`."""

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

from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.history import History, HistorySummary
from bot.domain.messages import ToolResult
from bot.domain.turns import (
    NO_TURN_LIMITS,
    Claim,
    ModelStep,
    Receipt,
    Step,
    StepStatus,
    ToolStep,
    TurnLimits,
    TurnRecord,
    TurnStatus,
    Wakeup,
)
from bot.domain.usage import NO_PRICES, PricedUsage, PriceList, UsageEntry, UsageKind
from bot.errors import LostLease, QueueFull, TurnInterrupted
from bot.storage import claims, files, inbox, turn_reader, turn_steps, usage
from bot.storage.approvals import SqlApprovalLog
from bot.storage.database import PATIENCE_SECONDS, Database
from bot.storage.deliveries import SqlDeliveryQueue
from bot.storage.elicitations import SqlElicitations
from bot.storage.history_cache import HistoryCache
from bot.storage.record_cache import RecordCache
from bot.storage.retention import SqlRetention
from bot.storage.turn_completion import LEASE_SECONDS

P = ParamSpec("P")
T = TypeVar("T")

STAMINA_SECONDS = 300.0
"""Seconds that a turn's owner waits for an unavailable database, because a tool's result must not be lost."""
AT_ONCE = 0.0
"""No retries, for requests that are repeated anyway."""

Listen = Callable[[Callable[[Wakeup], None]], Awaitable[None]]


async def _never_wake(_on_wakeup: Callable[[Wakeup], None]) -> None:
    await asyncio.Event().wait()


class SqlTurnLog(SqlDeliveryQueue, SqlRetention, SqlApprovalLog, SqlElicitations):
    """Turns on a database, claimed under the name `me`, which is new at every start, so that a dead process cannot
    claim its old leases. `prices` are the current prices of models; `limits` are those on the turns of one user.
    """

    def __init__(
        self,
        database: Database,
        listen: Listen = _never_wake,
        *,
        prices: PriceList = NO_PRICES,
        limits: TurnLimits = NO_TURN_LIMITS,
    ) -> None:
        self._database = database
        self._listen = listen
        self._records = RecordCache()
        self._arriving: set[str] = set()
        self._ended = HistoryCache()
        self._prices = prices
        self._limits = limits
        self.lease_seconds = LEASE_SECONDS if database.shared else None
        self.me = f"{os.uname().nodename}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    async def adopt_orphans(self) -> None:
        """Release all turns of a dead process. Only for the process that holds the lock file."""
        await self._run(claims.adopt_orphans)

    async def enqueue(self, message: InboundMessage) -> Receipt:
        """Add a turn for a message unless it is a duplicate. Raises QueueFull."""
        turn_id = uuid.uuid4().hex
        message = _with_key(message, turn_id)
        try:
            return self._accepted(await self._run(inbox.enqueue, message, turn_id, self._limits))
        except (inbox.Duplicate, IntegrityError):
            receipt = await self._run(inbox.find_duplicate, message, turn_id)
            if receipt is not None:
                return receipt
            return self._accepted(await self._run(inbox.enqueue, message, turn_id, self._limits))

    async def enqueue_and_claim(self, message: InboundMessage) -> tuple[Receipt, Claim | None]:
        """Add a turn for a message unless it is a duplicate, and claim it unless it has to wait. Raises QueueFull."""
        turn_id = uuid.uuid4().hex
        message = _with_key(message, turn_id)
        # A concurrent poll must not claim the same turn before the caller has the claim.
        self._arriving.add(turn_id)
        try:
            receipt, claim = await self._run(inbox.take_in, message, turn_id, self.me, self._limits)
            return self._accepted(receipt), claim
        except (inbox.Duplicate, IntegrityError):
            receipt = await self._run(inbox.find_duplicate, message, turn_id)
            return receipt if receipt is not None else await self.enqueue(message), None
        finally:
            self._arriving.discard(turn_id)

    def _accepted(self, receipt: Receipt | None) -> Receipt:
        if receipt is None:
            raise QueueFull(self._limits.queued)
        return receipt

    async def stop(self, turn_id: str, by: Author) -> bool:
        """End a turn without an owner, or ask its owner to end it."""
        return await self._run(inbox.stop, turn_id, by)

    async def claim(self, limit: int, holding: Collection[str] = (), reaches: Sequence[str] = ("",)) -> Sequence[Claim]:
        """Claim turns that can run now."""
        if not reaches:
            return ()
        reached = tuple(reaches)
        try:
            return await self._at_once(
                claims.claim, self.me, limit, reached, self._arriving.union(holding), limits=self._limits
            )
        except IntegrityError:
            # The database rejected a second active turn of a conversation: claim one by one, so that the others
            # succeed.
            with contextlib.suppress(IntegrityError):
                # Other requests may arrive meanwhile.
                return await self._at_once(
                    claims.claim, self.me, 1, reached, self._arriving.union(holding), limits=self._limits
                )
            return ()

    async def renew(self, owned: Sequence[Claim]) -> frozenset[str]:
        """Renew leases. Return the turns that are still owned and not stopped."""
        return await self._urgently(claims.renew, self.me, owned)

    async def release(self, owned: Sequence[Claim]) -> None:
        """Release turns, so that any process can claim them at once."""
        for claim in owned:
            self._records.pop(claim)
        await self._run(claims.release, owned)

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Yield wakeups from other processes."""
        await self._listen(on_wakeup)

    async def resume(self, claim: Claim) -> TurnRecord:
        """Settle leftovers of the previous owner and return the turn's record."""
        return self._records.put(claim, await self._drive(turn_steps.resume, claim))

    async def append(self, claim: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Record a reply and its calls."""
        charges = self._charges([reply] if reply else [])
        record = self._records.pop(claim)
        written = await self._drive(turn_steps.append, claim, reply, calls, record=record, charges=charges)
        return self._records.put(claim, _uninterrupted(written))

    async def start_call(self, claim: Claim, n: int) -> TurnRecord:
        """Record the intent to send a call."""
        record = self._records.pop(claim)
        return self._records.put(claim, await self._drive(turn_steps.start_call, claim, n, record=record))

    async def finish_call(
        self, claim: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record how a call ended."""
        try:
            record = self._records.pop(claim)
            written = await self._drive(
                turn_steps.finish_call, claim, n, status, result, seconds=seconds, record=record
            )
            return self._records.put(claim, written)
        except LostLease:
            await self._drive(turn_steps.keep_late_result, claim, n, result)
            raise

    async def park(self, claim: Claim) -> TurnRecord | None:
        """Park the turn while it waits for users."""
        self._records.pop(claim)
        return await self._drive(turn_steps.park, claim)

    async def finish(self, claim: Claim, status: TurnStatus, last: Sequence[Step], failure: str) -> TurnRecord:
        """End the turn."""
        charges = self._charges(last)
        record = self._records.pop(claim)
        written = _uninterrupted(
            await self._drive(turn_steps.finish, claim, status, last, failure, record=record, charges=charges)
        )
        self._ended.put([written])
        return self._records.put(claim, written)

    async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
        """Record usage of models."""
        await self._drive(usage.add_all, [(claim, self._charge(use)) for claim, use in uses])

    async def fail(self, claim: Claim, failure: str) -> None:
        """End the turn without reading it."""
        self._records.pop(claim)
        await self._drive(turn_steps.fail, claim, failure)

    async def history(self, conversation: ConversationKey, before: int, limit: int) -> History:
        """Return earlier turns of a conversation and the summary of the oldest."""
        if before <= 1:
            return History()
        return await self._run(turn_reader.read_history, conversation, before, limit, self._ended)

    async def save_summary(self, claim: Claim, summary: HistorySummary, past: History) -> None:
        """Save the summary of the oldest turns."""
        await self._drive(turn_steps.save_summary, claim, summary, past)

    async def get_call(self, conversation: ConversationKey, seq: int, n: int) -> ToolStep | None:
        """Return a call by its conversation, turn and step."""
        return await self._run(turn_reader.read_call_at, conversation, seq, n)

    async def latest_conversation(self, reach: str) -> ConversationKey | None:
        """Return the conversation with the latest message."""
        return await self._run(turn_reader.read_latest, reach)

    async def get_file(self, turn_id: str, file_id: str) -> bytes:
        """Return the bytes of a file returned by a tool."""
        return await self._run(files.read_file, turn_id, file_id)

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


def _with_key(message: InboundMessage, turn_id: str) -> InboundMessage:
    """Return the message with a generated key if it has none, so that a repetition after a lost COMMIT response is
    recognized.
    """
    return message if message.keys else dataclasses.replace(message, keys=(f"turn:{turn_id}",))


def _uninterrupted(record: TurnRecord | TurnInterrupted) -> TurnRecord:
    if isinstance(record, TurnInterrupted):
        raise record
    return record
