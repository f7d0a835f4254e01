"""Two transactions on PostgreSQL at the same time. The first is held up before one of its statements until the second
has finished or waits for it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from bot.domain.approvals import Approval, ApprovalNotFound, Decided, Decision, DecisionType, Portion
from bot.domain.completions import StopReason
from bot.domain.conversations import ConversationKey
from bot.domain.messages import ToolCall, assistant
from bot.domain.turns import Claim, ModelStep, PostedMessage, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.storage import audit
from bot.storage.reporting import SqlReporting
from bot.storage.turn_log.log import SqlTurnLog
from tests.audit_check import audit_findings, audit_rows
from tests.fakes.parts import ANA, BEN, HALL, NEWEST, message, until
from tests.turn_log_harness import PostgresHarness, running

A = TypeVar("A")
B = TypeVar("B")

OTHER = ConversationKey("test", "w", "hall", "2")
WANTS = ModelStep(1, assistant("", ToolCall("c2", "s__write", {"a": 1})), StopReason.TOOLS)


pytestmark = pytest.mark.usefixtures("no_deadlocks")


class Gate:
    """Gate before the `which`-th statement that matches `pattern`; "commit" matches a COMMIT. `opened` lifts it."""

    def __init__(self, harness: PostgresHarness, pattern: str, which: int = 1) -> None:
        self._pattern = re.compile(pattern, re.DOTALL | re.IGNORECASE)
        self._left = which
        self.reached, self.opened = threading.Event(), threading.Event()
        engine = harness.database._engine  # type: ignore[attr-defined]
        sa.event.listen(engine, "before_cursor_execute", self._before)
        sa.event.listen(engine, "commit", lambda _connection: self._before(None, None, "commit"))

    def _before(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self._left and self._pattern.search(statement):
            self._left -= 1
            if not self._left:
                self.reached.set()
                assert self.opened.wait(60)


async def overlapping(
    harness: PostgresHarness,
    first: Coroutine[Any, Any, A],
    held_up_before: str,
    second: Coroutine[Any, Any, B],
    which: int = 1,
) -> tuple[A, B]:
    """Run the second coroutine while the first is inside its transaction. Return both results."""
    gate = Gate(harness, held_up_before, which)
    one = asyncio.create_task(first)
    await until(gate.reached.is_set)
    two = asyncio.create_task(second)
    await until(lambda: two.done() or _somebody_waits(harness))
    gate.opened.set()
    return await one, await two


def _somebody_waits(harness: PostgresHarness) -> bool:
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return bool(harness.ask(waiting))


def approval(card: str = "card-1", expires_in: float | None = 60.0) -> Approval:
    return Approval(card, 1, "print", ANA, expires_in)


def write(n: int, status: StepStatus = StepStatus.READY, asked: Approval | None = None) -> ToolStep:
    return ToolStep(n, ToolCall(f"c{n}", "s__write", {"a": 1}), ToolRef("s", "write"), status, approval=asked)


async def driving(harness: PostgresHarness, number: int) -> Sequence[Claim]:
    """Claim turns of `number` conversations for the current process."""
    for n in range(number):
        await harness.log.enqueue(message(str(n), conversation=ConversationKey("test", "w", "hall", str(n))))
    return await harness.log.claim(number)


async def asking(harness: PostgresHarness) -> tuple[Claim, int]:
    """Store a turn with a call that awaits approval, and acquire its delivery. Return the claim and the card's
    revision.
    """
    claim = await running(harness)
    record = await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    return claim, record.revision


async def test_a_turn_parked_while_its_card_is_being_posted_still_expires(harness: PostgresHarness) -> None:
    claim, revision = await asking(harness)
    posting = harness.log.mark_delivered(claim.turn_id, revision)
    _, suspended = await overlapping(harness, posting, "commit", harness.log.suspend(claim))
    assert suspended is None
    harness.time += 61
    (again,) = await harness.log.claim(8)
    assert (await harness.log.resume(again)).calls[0].status is StepStatus.EXPIRED


async def test_a_message_that_comes_while_its_conversation_is_deleted_is_not_deleted_with_it(
    harness: PostgresHarness,
) -> None:
    await harness.log.finish(await running(harness), TurnStatus.DONE, [], "")
    coming = harness.log.enqueue(message("new"))
    receipt, _ = await overlapping(
        harness, coming, "insert into deliveries", SqlReporting(harness.database).delete(HALL, BEN)
    )
    assert [view.turn.id for view in await harness.log.recent_turns(HALL, 9)][-1:] == [receipt.turn_id]


async def test_a_message_that_comes_while_old_turns_are_deleted_is_not_deleted_with_them(
    harness: PostgresHarness,
) -> None:
    claim = await running(harness)
    record = await harness.log.finish(claim, TurnStatus.DONE, [], "")
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    await harness.log.mark_delivered(claim.turn_id, record.revision)
    harness.time += 31 * 86400
    coming = harness.log.enqueue(message("new"))
    receipt, deleted = await overlapping(
        harness, coming, "insert into deliveries", harness.log.delete_old(30 * 86400, 9)
    )
    assert deleted == 1
    assert [view.turn.id for view in await harness.log.recent_turns(HALL, 9)] == [receipt.turn_id]


async def test_keeping_a_reference_and_deciding_do_not_block_each_other_for_good(harness: PostgresHarness) -> None:
    claim, _ = await asking(harness)
    click = harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    keeping = harness.log.save_message_ref(claim.turn_id, PostedMessage("card", "m1"))
    settled, _ = await overlapping(harness, click, "update deliveries", keeping)
    assert settled == Decided(DecisionType.APPROVE)


async def test_posting_a_card_and_deciding_do_not_block_each_other_for_good(harness: PostgresHarness) -> None:
    claim, revision = await asking(harness)
    await harness.log.suspend(claim)
    posting = harness.log.mark_delivered(claim.turn_id, revision)
    click = harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    _, settled = await overlapping(harness, posting, "update approvals", click)
    assert settled == Decided(DecisionType.APPROVE)


async def test_deciding_and_stopping_the_turn_behind_do_not_block_each_other_for_good(harness: PostgresHarness) -> None:
    claim, _ = await asking(harness)
    await harness.log.suspend(claim)
    behind = await harness.log.enqueue(message("next"))
    click = harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    settled, stopped = await overlapping(harness, click, "pg_advisory_xact_lock", harness.log.stop(behind.turn_id, BEN))
    assert (settled, stopped) == (Decided(DecisionType.APPROVE), True)


async def test_leases_are_renewed_though_a_transaction_on_one_of_the_turns_waits(harness: PostgresHarness) -> None:
    first, other = await driving(harness, 2)
    await harness.log.append(first, WANTS, [write(2)])
    gate = Gate(harness, "update steps")
    beginning = asyncio.create_task(harness.log.start_call(first, 2))
    await until(gate.reached.is_set)
    kept = await without_waiting(harness.log.renew([first, other]), gate)
    assert kept == {first.turn_id, other.turn_id}
    await beginning


async def test_drawings_are_held_though_a_transaction_on_one_of_them_waits(harness: PostgresHarness) -> None:
    claim, revision = await asking(harness)
    gate = Gate(harness, "update approvals")
    drawing = asyncio.create_task(harness.log.mark_delivered(claim.turn_id, revision))
    await until(gate.reached.is_set)
    assert await without_waiting(harness.log.renew_deliveries([claim.turn_id]), gate) == {claim.turn_id}
    await drawing


async def without_waiting(work: Coroutine[Any, Any, A], gate: Gate) -> A:
    """Return the result of work that needs no lock held at the closed gate. Open the gate afterwards."""
    try:
        async with asyncio.timeout(30):  # the gate stays closed until the work has ended
            return await work
    finally:
        gate.opened.set()


async def test_a_click_on_a_card_whose_conversation_is_deleted_meanwhile_settles_nothing(
    harness: PostgresHarness,
) -> None:
    claim, _ = await asking(harness)
    await harness.log.stop(claim.turn_id, BEN)
    await harness.log.finish(claim, TurnStatus.CANCELLED, [], "")
    deleting = SqlReporting(harness.database).delete(HALL, BEN)
    click = harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, ANA))
    deleted, settled = await overlapping(harness, deleting, "insert into audit", click)
    assert (deleted, settled) == (True, ApprovalNotFound())


async def test_a_call_that_is_opened_twice_at_once_is_opened_once(harness: PostgresHarness) -> None:
    await asking(harness)
    page = Portion(1, 2)
    views = [harness.log.record_view("card-1", 1, page, BEN), harness.log.record_view("card-1", 1, page, BEN)]
    assert await overlapping(harness, views[0], "insert into approval_views", views[1]) == (True, True)
    entries = await harness.database.run(audit_rows)
    assert [entry["kind"] for entry in entries].count("opened") == 1


async def test_two_messages_at_once_know_which_of_them_waits(harness: PostgresHarness) -> None:
    receipts = await overlapping(
        harness, harness.log.enqueue(message("one")), "insert into deliveries", harness.log.enqueue(message("two"))
    )
    assert sorted(receipt.queue_position for receipt in receipts) == [0, 1]
    assert await harness.log.stale_views("test:", 8) == [receipts[1].turn_id]


async def test_one_message_under_several_names_in_two_conversations_is_one_turn_without_a_deadlock(
    harness: PostgresHarness,
) -> None:
    here = harness.log.enqueue(message("hi", "a", "b"))
    there = harness.log.enqueue(message("hi", "b", "a", conversation=OTHER))
    receipts = await overlapping(harness, here, "insert into message_keys", there, which=2)
    assert len({receipt.turn_id for receipt in receipts}) == 1


async def test_the_audit_stays_one_chain_at_any_default_isolation_of_the_server(harness: PostgresHarness) -> None:
    def prefer(connection: sa.Connection) -> None:
        name = connection.exec_driver_sql("select current_database()").scalar_one()
        connection.exec_driver_sql(f"alter database {name} set default_transaction_isolation to 'repeatable read'")

    await harness.database.run(prefer)
    strict = harness.another_process()
    try:
        claims = await driving(strict, 8)
        await asyncio.gather(*(strict.log.stop(claim.turn_id, BEN) for claim in claims))
        assert await audit_findings(strict.database) == []
        rows = await strict.database.run(audit_rows)
        assert len(rows) == 8
    finally:
        await strict.close()


async def test_a_transaction_that_is_taken_back_leaves_no_gap_in_the_audit(harness: PostgresHarness) -> None:
    claim = await running(harness)

    def half(connection: sa.Connection) -> None:
        audit.record(connection, "half", "test:ana")
        raise RuntimeError("taken back")

    stopping = harness.log.stop(claim.turn_id, BEN)
    taken_back = asyncio.gather(harness.database.run(half), return_exceptions=True)
    await asyncio.gather(taken_back, stopping)
    rows = await harness.database.run(audit_rows)
    assert [(row["seq"], row["kind"]) for row in rows] == [(1, "stopped")]


async def test_a_result_is_stored_though_its_turn_is_released_at_that_moment(
    harness: PostgresHarness,
) -> None:
    """The task that stores the result is cancelled during the write. The release that follows must not overtake it."""
    from tests.contracts.test_turn_logs import result  # noqa: PLC0415

    claim = await running(harness)
    await harness.log.append(claim, WANTS, [write(2)])
    await harness.log.start_call(claim, 2)
    gate = Gate(harness, "update turns")
    ending = asyncio.create_task(harness.log.finish_call(claim, 2, StepStatus.DONE, result()))
    await until(gate.reached.is_set)
    ending.cancel()
    leaving = asyncio.create_task(_after(ending, harness.log.release([claim])))
    if (await asyncio.wait({ending}, timeout=0.2))[0]:
        await leaving
    gate.opened.set()
    await leaving
    (again,) = await SqlTurnLog(harness.database).claim(8)
    assert (await harness.log.resume(again)).calls[0].status is StepStatus.DONE


async def _after(task: asyncio.Task[Any], work: Coroutine[Any, Any, A]) -> A:
    await asyncio.wait({task})
    return await work
