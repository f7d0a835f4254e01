"""Metrics of turns, calls and approvals. Each end is counted once, by the process that wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from bot.domain.approvals import Approval, Decision, DecisionType
from bot.domain.completions import StopReason
from bot.domain.messages import TextPart, ToolCall, ToolResult, assistant
from bot.domain.metrics import ApprovalAsked, ApprovalEnded, CallEnded, MetricEvent, TurnEnded
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.storage.database import Rank
from tests.fakes.parts import ANA, BEN
from tests.turn_log_harness import Harness, running

T = TypeVar("T")
REF = ToolRef("s", "write", server_id="id-of-s")


def collect_metrics(harness: Harness) -> list[MetricEvent]:
    """Return the list to which all later metric events are appended."""
    found: list[MetricEvent] = []
    harness.database.observe = found.append
    return found


def make_call(n: int, status: StepStatus, card: str = "", *, repeatable: bool = False) -> ToolStep:
    approval = Approval(card, 1, "print", ANA, 60.0) if card else None
    return ToolStep(n, ToolCall(f"c{n}", "s__write", {}), REF, status, repeatable, approval=approval)


async def asking_for(harness: Harness, *steps: ToolStep) -> Claim:
    claim = await running(harness)
    reply = ModelStep(1, assistant("", *(step.call for step in steps)), StopReason.TOOLS)
    await harness.log.append(claim, reply, steps)
    return claim


def result(n: int) -> ToolResult:
    return ToolResult(f"c{n}", (TextPart("it"),))


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.FAILED])
async def test_a_turn_that_ends_is_measured_with_how_long_it_took(harness: Harness, status: TurnStatus) -> None:
    found = collect_metrics(harness)
    claim = await running(harness)
    harness.time += 2.5
    for _ in range(2):
        await harness.log.finish(claim, status, (), "")
    assert found == [TurnEnded("test", status, 2.5)]


async def test_a_call_without_an_approval_is_measured_when_it_has_ended(harness: Harness) -> None:
    found = collect_metrics(harness)
    claim = await asking_for(harness, make_call(2, StepStatus.READY, repeatable=True))
    for _ in range(2):
        await harness.log.finish_call(claim, 2, StepStatus.FAILED, result(2), 0.25)
    assert found == [CallEnded("s", "write", "failed", 0.25)]


async def test_an_approved_call_is_an_approval_asked_one_ended_and_a_call(harness: Harness) -> None:
    found = collect_metrics(harness)
    claim = await asking_for(harness, make_call(2, StepStatus.AWAITING, "card-1"))
    harness.time += 3
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, ANA))
    await harness.log.start_call(claim, 2)
    await harness.log.finish_call(claim, 2, StepStatus.DONE, result(2), 1.5)
    assert found == [
        ApprovalAsked("test"),
        ApprovalEnded("test", "approved", 3.0),
        CallEnded("s", "write", "done", 1.5),
    ]


async def test_a_call_that_is_turned_down_ends_its_approval_and_never_ran(harness: Harness) -> None:
    found = collect_metrics(harness)
    await asking_for(harness, make_call(2, StepStatus.AWAITING, "card-1"))
    await harness.log.decide(Decision("card-1", 1, DecisionType.DENY, BEN))
    assert found == [ApprovalAsked("test"), ApprovalEnded("test", "denied", 0.0)]


async def test_an_approval_that_times_out_is_measured_once_by_any_process(harness: Harness) -> None:
    found = collect_metrics(harness)
    claim = await asking_for(harness, make_call(2, StepStatus.AWAITING, "card-1"))
    await harness.log.acquire_delivery(claim.turn_id, 99)
    await harness.log.mark_delivered(claim.turn_id, 99)
    await harness.log.suspend(claim)
    harness.time += 61
    (again,) = await harness.log.claim(1)
    for _ in range(2):
        await harness.log.resume(again)
    assert found == [ApprovalAsked("test"), ApprovalEnded("test", "expired", 61.0)]


async def test_a_call_with_an_undelivered_card_ends_as_not_shown(harness: Harness) -> None:
    found = collect_metrics(harness)
    claim = await asking_for(harness, make_call(2, StepStatus.AWAITING, "card-1"))
    await harness.log.acquire_delivery(claim.turn_id, 99)
    assert await harness.log.give_up_delivery(claim.turn_id, 99, "It is archived.")
    assert found[1:] == [ApprovalEnded("test", "not shown", 0.0)]


async def test_a_policy_that_forbids_a_call_is_measured_once(harness: Harness) -> None:
    found = collect_metrics(harness)
    claim = await asking_for(harness, make_call(2, StepStatus.DENIED))
    await harness.log.append(claim, None, [make_call(2, StepStatus.DENIED)])
    assert found == [CallEnded("s", "write", "denied", None)]


async def test_stopping_a_turn_ends_its_undecided_calls_alone(harness: Harness) -> None:
    found = collect_metrics(harness)
    claim = await asking_for(
        harness,
        make_call(2, StepStatus.AWAITING, "card-1"),
        make_call(3, StepStatus.AWAITING, "card-2"),
        make_call(4, StepStatus.READY, repeatable=True),
    )
    await harness.log.decide(Decision("card-1", 1, DecisionType.APPROVE, BEN))
    assert await harness.log.stop(claim.turn_id, ANA)
    await harness.log.finish(claim, TurnStatus.CANCELLED, (), "")
    assert found[3:] == [ApprovalEnded("test", "cancelled", 0.0), TurnEnded("test", "cancelled", 0.0)]


async def test_a_call_that_a_crash_leaves_in_flight_is_measured_by_the_next_process(harness: Harness) -> None:
    claim = await asking_for(harness, make_call(2, StepStatus.READY))
    await harness.log.start_call(claim, 2)
    log = await harness.restart()
    found = collect_metrics(harness)
    (again,) = await log.claim(1)
    for _ in range(2):
        await log.resume(again)
    (ended,) = found
    assert isinstance(ended, CallEnded)
    assert (ended.server, ended.tool, ended.status) == ("s", "write", "unknown")


async def test_a_rolled_back_transaction_is_not_measured_and_the_next_attempt_is_once(harness: Harness) -> None:
    claim = await running(harness)
    run_once = harness.database.run_once
    tries = 0

    async def broken_first(transaction: Callable[[sa.Connection], T], rank: Rank = "ordinary") -> T:
        nonlocal tries
        tries += 1
        if tries > 1:
            return await run_once(transaction, rank)

        def fails_late(connection: sa.Connection) -> T:
            transaction(connection)
            raise OperationalError("commit", None, Exception("database is locked"))

        return await run_once(fails_late, rank)

    harness.database.run_once = broken_first  # type: ignore[method-assign]
    found = collect_metrics(harness)
    await harness.log.finish(claim, TurnStatus.DONE, (), "")
    assert tries == 2
    assert found == [TurnEnded("test", "done", 0.0)]
