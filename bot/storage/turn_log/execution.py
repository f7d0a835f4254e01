"""Turns as their owner runs them: replies, calls, suspension and ending.

Each transaction proves ownership first. Each is safe to run twice, because the outcome of a COMMIT with a lost response
is unknown.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.domain.approvals import Approval, ApprovalNotice
from bot.domain.completions import StopReason
from bot.domain.messages import ToolResult
from bot.domain.turns import (
    NO_CALLS,
    WAITING,
    CallOrigin,
    Claim,
    ModelStep,
    Step,
    StepStatus,
    StepTimes,
    ToolStep,
    TurnRecord,
    TurnStatus,
)
from bot.domain.usage import PricedUsage, PriceList, UsageEntry, UsageKind
from bot.errors import LostLease, TurnInterrupted
from bot.storage import audit, usage
from bot.storage.admin.grants import use_grants
from bot.storage.audit import record_finished, record_new, record_sent
from bot.storage.codec import converter, encode
from bot.storage.database import OWNER_RETRY_SECONDS, Store, Upsert, insert_new, matching, now, send_wakeup, transaction
from bot.storage.tables import approvals, steps, this_step, turns
from bot.storage.turn_log import elicitation_rows
from bot.storage.turn_log import records as turn_records
from bot.storage.turn_log.history import HistoryCache
from bot.storage.turn_log.records import RecordCache, read_record
from bot.storage.turn_log.states import (
    check_claim,
    end_settled,
    end_turn,
    expire_overdue,
    mark_queued_views_stale,
    mark_view_stale,
    own_to_the_end,
    record_expired,
    release_claims,
    settle_leftovers,
    suspend_until_decided,
)

T = TypeVar("T")

_add_step = Upsert(lambda insert: insert(steps).values(created_at=now()).on_conflict_do_nothing())
_times = (steps.c.created_at, steps.c.started_at, steps.c.ended_at)
# A call that may be repeated is not recorded at its start.
_started_at = sa.func.coalesce(steps.c.started_at, now() - bindparam("seconds", type_=sa.Double))
_add_approval = insert_new(approvals, view_revision=elicitation_rows.next_revision)
_begin = (
    steps.update()
    .where(
        this_step,
        sa.or_(
            steps.c.status == StepStatus.READY,
            sa.and_(steps.c.status == StepStatus.STARTED, steps.c.fence == bindparam("f")),
        ),
    )
    .values(status=StepStatus.STARTED, fence=bindparam("f"), started_at=now())
    .returning(*_times)
)
_end = (
    steps.update()
    .where(this_step, steps.c.status.in_([StepStatus.READY, StepStatus.STARTED]))
    .values(status=bindparam("to"), result=bindparam("what"), started_at=_started_at, ended_at=now())
    .returning(*_times)
)
_break_off = (
    steps.update()
    .where(this_step, steps.c.status == StepStatus.READY)
    .values(status=bindparam("to"), started_at=_started_at, ended_at=now())
)
_keep_late_result = (
    steps.update()
    .where(
        this_step,
        steps.c.fence == bindparam("f"),
        sa.exists().where(turns.c.id == steps.c.turn_id, turns.c.content_deleted_at.is_(None)),
    )
    .values(late_result=bindparam("what"))
)
_claimed = sa.select(turns.c.id).where(matching(turns, id="t", fence="f"))
_suspended = _claimed.where(turns.c.status == TurnStatus.WAITING)
_finished = _claimed.where(turns.c.status.in_([TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED]))


class SqlTurnExecution(Store):
    """Turns that this process runs; see `bot.ports.TurnExecution`. Part of `SqlTurnLog`."""

    _records: RecordCache
    _ended: HistoryCache
    _prices: PriceList

    async def resume(self, claim: Claim) -> TurnRecord:
        """Settle leftovers of the previous owner and return the turn's record. Raises LostLease and Stopped."""

        def resume(connection: sa.Connection) -> TurnRecord:
            check_claim(connection, claim)
            settle_leftovers(connection, claim)
            return read_record(connection, claim.turn_id)

        return self._records.put(claim, await self._run(resume))

    async def append(self, claim: Claim, reply: ModelStep | None, calls: Sequence[ToolStep]) -> TurnRecord:
        """Add a reply and its calls, or calls alone. Usage is recorded even if the turn is stopped or lost."""
        charges = self._charges([reply] if reply else [])
        cached = self._records.pop(claim)

        def append_steps(connection: sa.Connection) -> TurnRecord | TurnInterrupted:
            """Add steps. LostLease and Stopped are returned, because raising them would roll back the usage."""
            usage.add(connection, claim, charges)
            try:
                record = turn_records.current_record(cached, check_claim(connection, claim))
            except TurnInterrupted as interrupted:
                return interrupted
            more: Sequence[Step] = [*([reply] if reply else []), *use_grants(connection, claim.turn_id, calls)]
            new = _add_steps(connection, claim.turn_id, more)
            mark_view_stale(connection, claim.turn_id)
            record = turn_records.with_steps(record, more) or read_record(connection, claim.turn_id)
            record_new(connection, record.turn, new)
            return record

        return self._records.put(claim, _raise_if_interrupted(await self._run(append_steps)))

    async def start_call(self, claim: Claim, n: int) -> TurnRecord:
        """Record that a call is about to be sent. Raises LostLease if it may not be, and Stopped."""
        cached = self._records.pop(claim)

        def start(connection: sa.Connection) -> TurnRecord:
            record = turn_records.current_record(cached, check_claim(connection, claim))
            times = connection.execute(_begin, {"t": claim.turn_id, "i": n, "f": claim.fencing_token}).first()
            if times is None:
                raise LostLease(claim.turn_id)
            mark_view_stale(connection, claim.turn_id)
            started = turn_records.with_call(record, n, StepStatus.STARTED, StepTimes(*times))
            return started or read_record(connection, claim.turn_id)

        return self._records.put(claim, await self._run(start))

    async def finish_call(
        self, claim: Claim, n: int, status: StepStatus, result: ToolResult, seconds: float | None = None
    ) -> TurnRecord:
        """Record how a call ended, also in a turn that is being stopped. Raises LostLease, and stores the result beside
        the step then.
        """
        try:
            cached = self._records.pop(claim)
            finished = await self._finish_call(claim, n, status, result, seconds=seconds, record=cached)
            return self._records.put(claim, finished)
        except LostLease:
            await self._save_late_result(claim, n, result)
            raise

    async def suspend(self, claim: Claim) -> TurnRecord | None:
        """Release the turn and its lease while it waits for users. Return its record instead if it can continue."""
        self._records.pop(claim)
        return await self._run(lambda connection: _park(connection, claim))

    async def finish(
        self,
        claim: Claim,
        status: TurnStatus,
        last: Sequence[Step],
        failure: str,
        *,
        unanswered: Mapping[int, float] = NO_CALLS,
    ) -> TurnRecord:
        """End the turn with its last steps. A stopped turn ends as cancelled, and no other turn does; it keeps the
        text that the model wrote. `unanswered` are calls that were sent and have not ended, with the seconds since.
        """
        charges = self._charges(last)
        record = self._records.pop(claim)
        written = _raise_if_interrupted(
            await self._finish(claim, status, last, failure, unanswered=unanswered, record=record, charges=charges)
        )
        self._ended.put([written])
        return self._records.put(claim, written)

    async def fail(self, claim: Claim, failure: str) -> None:
        """End the turn without reading it. Raises LostLease."""
        self._records.pop(claim)
        await self._run(lambda connection: _fail(connection, claim, failure))

    async def record_usage(self, uses: Sequence[tuple[Claim, UsageEntry]]) -> None:
        """Record usage of models."""
        priced = [(claim, self._charge(use)) for claim, use in uses]
        await self._run(lambda connection: usage.add_all(connection, priced))

    async def _run(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._database.run(work, retry_seconds=OWNER_RETRY_SECONDS)

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def _finish_call(
        self,
        connection: sa.Connection,
        claim: Claim,
        n: int,
        status: StepStatus,
        result: ToolResult,
        *,
        seconds: float | None,
        record: TurnRecord | None,
    ) -> TurnRecord:
        record = turn_records.current_record(record, own_to_the_end(connection, claim)[0])
        what = encode(turn_records.save_files(connection, claim.turn_id, result))
        ended = connection.execute(
            _end, {"t": claim.turn_id, "i": n, "to": status, "what": what, "seconds": seconds}
        ).first()
        mark_view_stale(connection, claim.turn_id)
        changed = None if ended is None else turn_records.with_call(record, n, status, StepTimes(*ended), what)
        record = changed or read_record(connection, claim.turn_id)
        if any(step.n == n and step.pending_elicitations for step in record.calls):
            elicitation_rows.withdraw_of_step(connection, claim.turn_id, n)
            record = read_record(connection, claim.turn_id)
        if changed is not None and seconds is not None:
            record_sent(connection, changed.turn, next(step for step in changed.calls if step.n == n), seconds)
        elif ended is not None:
            record_finished(connection, claim.turn_id, n, seconds)
        return record

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def _save_late_result(self, connection: sa.Connection, claim: Claim, n: int, result: ToolResult) -> None:
        """Record a result that arrived after the lease was lost. The step stays as the new owner settled it."""
        body = encode(turn_records.strip_bytes(result))
        connection.execute(_keep_late_result, {"t": claim.turn_id, "i": n, "f": claim.fencing_token, "what": body})
        where = {"turn_id": claim.turn_id, "conversation": str(claim.conversation)}
        audit.record(connection, "came late", audit.NOBODY, **where, step=n, is_error=result.is_error)

    @transaction(retry_seconds=OWNER_RETRY_SECONDS)
    def _finish(
        self,
        connection: sa.Connection,
        claim: Claim,
        status: TurnStatus,
        last: Sequence[Step],
        failure: str,
        *,
        unanswered: Mapping[int, float],
        record: TurnRecord | None,
        charges: Sequence[PricedUsage],
    ) -> TurnRecord | LostLease:
        """End the turn. LostLease is returned, not raised, because an exception would roll back the usage."""
        usage.add(connection, claim, charges)
        try:
            revision, stopped_by = own_to_the_end(connection, claim)
        except LostLease as lost:
            if connection.execute(_finished, {"t": claim.turn_id, "f": claim.fencing_token}).first() is None:
                return lost
            return read_record(
                connection, claim.turn_id
            )  # ended by this same transaction, after a lost COMMIT response
        if stopped_by is None and status is TurnStatus.CANCELLED:
            release_claims(connection, [claim])  # not stopped: the turn continues
        elif stopped_by is None:
            new = _add_steps(connection, claim.turn_id, last)
            if new:
                record_new(connection, read_record(connection, claim.turn_id).turn, new)
            record = turn_records.with_steps(turn_records.current_record(record, revision), last)
            if record is not None and turn_records.is_settled(record):
                end_settled(connection, claim.turn_id, status, failure)
                return turn_records.ended_record(record, status, failure)
            _close_unanswered(connection, claim, unanswered)
            end_turn(connection, claim.turn_id, status, failure)
        else:
            _close_unanswered(connection, claim, unanswered)
            _add_steps(connection, claim.turn_id, [step for step in last if isinstance(step, ModelStep)])
            end_turn(connection, claim.turn_id, TurnStatus.CANCELLED, f"Stopped by {stopped_by}.")
        return read_record(connection, claim.turn_id)

    def _charges(self, new: Sequence[Step]) -> Sequence[PricedUsage]:
        return [
            self._charge(step.use or UsageEntry(uuid.uuid4().hex, step.n, UsageKind.REPLY, step.model, step.usage))
            for step in new
            if isinstance(step, ModelStep) and step.stop is not StopReason.STOPPED  # charged as a broken-off reply
        ]

    def _charge(self, use: UsageEntry) -> PricedUsage:
        return PricedUsage(use, self._prices.cost(use.model, use.usage), self._prices.currency)


def _park(connection: sa.Connection, claim: Claim) -> TurnRecord | None:
    try:
        check_claim(connection, claim)
    except LostLease:
        if connection.execute(_suspended, {"t": claim.turn_id, "f": claim.fencing_token}).first() is None:
            raise
        return None  # by this same transaction, after a lost COMMIT response
    expired = expire_overdue(connection, claim.turn_id)
    if elicitation_rows.settle_overdue(connection, claim.turn_id) or expired:
        mark_view_stale(connection, claim.turn_id)
    record = read_record(connection, claim.turn_id)
    open_calls = [step for step in record.calls if not step.status.ended]
    goes_on = not open_calls or any(step.status not in WAITING for step in open_calls)
    if not goes_on:
        suspend_until_decided(connection, claim.turn_id)
        mark_queued_views_stale(connection, claim.turn_id)
        send_wakeup(connection)
    record_expired(connection, claim.turn_id, expired)
    return record if goes_on else None


def _fail(connection: sa.Connection, claim: Claim, failure: str) -> None:
    try:
        _, stopped_by = own_to_the_end(connection, claim)
    except LostLease:
        if connection.execute(_finished, {"t": claim.turn_id, "f": claim.fencing_token}).first() is None:
            raise
        return
    if stopped_by is None:
        end_turn(connection, claim.turn_id, TurnStatus.FAILED, failure)
    else:
        end_turn(connection, claim.turn_id, TurnStatus.CANCELLED, f"Stopped by {stopped_by}.")


def _close_unanswered(connection: sa.Connection, claim: Claim, unanswered: Mapping[int, float]) -> None:
    """End the calls that had been sent when their turn ended, as far as no row says that they were: those that may be
    repeated. A lost owner may have sent all of these.
    """
    if not unanswered and not claim.recoveries:
        return
    for step in read_record(connection, claim.turn_id).ready_calls:
        if step.repeatable and (step.n in unanswered or claim.recoveries):
            # A call that only reads has changed nothing; the others may have run.
            status = StepStatus.CANCELLED if step.only_reads else StepStatus.UNKNOWN
            seconds = unanswered.get(step.n, 0.0)
            connection.execute(_break_off, {"t": claim.turn_id, "i": step.n, "to": status, "seconds": seconds})
            record_finished(connection, claim.turn_id, step.n)


def _add_steps(connection: sa.Connection, turn_id: str, new: Sequence[Step]) -> Sequence[ToolStep]:
    """Return the calls that the audit has to record. Previews follow the calls that wait for approvals."""
    if new:
        connection.execute(_add_step.on(connection), [_step_row(turn_id, step) for step in new])
    recorded, asks = [], False
    for step in new:
        if not isinstance(step, ToolStep):
            continue
        if step.approval is not None:
            row = _approval_row(turn_id, step, step.approval)
            is_new = connection.execute(_add_approval.on(connection), row).first() is not None
            asks |= is_new
        else:
            is_new = step.status is StepStatus.DENIED or (asks and step.origin is CallOrigin.PREVIEW)
        recorded += [step] if is_new else []
    return recorded


def _step_row(turn_id: str, step: Step) -> dict[str, Any]:
    row = {"turn_id": turn_id, "n": step.n, "body": encode(step)}
    match step:
        case ModelStep():
            return {**row, "kind": "model", "status": StepStatus.DONE, "repeatable": True, "result": None}
        case ToolStep(status=status, repeatable=repeatable):
            result = None if step.result is None else encode(step.result)
            return {**row, "kind": "tool", "status": status, "repeatable": repeatable, "result": result}


def _approval_row(turn_id: str, step: ToolStep, approval: Approval) -> dict[str, Any]:
    same = ("id", "revision", "fingerprint", "expires_in", "remind_in")
    return {
        **{name: getattr(approval, name) for name in same},
        "turn_id": turn_id,
        "t": turn_id,
        "n": step.n,
        "proposed_arguments": dict(step.call.arguments),
        "requested_for_id": approval.requested_for.id,
        "requested_for_name": approval.requested_for.name,
        "requirements": encode(approval.requirements),
        "proposed_secrets": converter.unstructure(approval.secrets),
        "possible_approvers": encode(approval.possible_approvers),
        "notify_privately": bool(approval.possible_approvers.with_notice(ApprovalNotice.PRIVATE)),
    }


def _raise_if_interrupted(record: TurnRecord | TurnInterrupted) -> TurnRecord:
    if isinstance(record, TurnInterrupted):
        raise record
    return record
