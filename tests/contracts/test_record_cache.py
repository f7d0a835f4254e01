"""The cached record of a running turn equals the record read from its rows."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import math

import sqlalchemy as sa

from bot.domain.approvals import Approval, ApprovalPolicy
from bot.domain.audit import AuditQuery
from bot.domain.completions import StopReason, Usage
from bot.domain.grants import GrantUse
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, TextPart, ToolCall, ToolResult, assistant
from bot.domain.policies import StoredPolicyResult
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnRecord, TurnStatus, TurnView
from bot.storage.reporting import SqlReporting
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import ANA, message
from tests.turn_log_harness import Harness

ODD = {"number": math.nan, "many": (1, 2), "text": "é\u2028", 5: None}


def reply_with_calls(n: int, *calls: ToolCall) -> ModelStep:
    said = Message(MessageRole.ASSISTANT, (TextPart("Let me see."), *calls), {"thinking": ("a", "b"), "sure": math.inf})
    return ModelStep(n, said, StopReason.TOOLS, Usage(10, 20, 5), ("A note.",))


def step(n: int, **arguments: object) -> ToolStep:
    return ToolStep(
        n,
        ToolCall(f"c{n}", "s__read", arguments),
        ToolRef("s", "read"),
        StepStatus.READY,
        policy_result=StoredPolicyResult(ApprovalPolicy.ALWAYS_ALLOW),
    )


async def claim_new_turn(harness: Harness) -> Claim:
    await harness.log.enqueue(message("hi"))
    (claim,) = await harness.log.claim(1)
    return claim


async def is_what_is_read(harness: Harness, record: TurnRecord) -> bool:
    view = await harness.log.get_view(record.turn.id)
    return TurnView(record.turn, record.steps, record.revision, early=view.early) == view


async def test_everything_that_is_written_is_told_as_it_is_read(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    calls = (step(2, **{str(key): value for key, value in ODD.items()}), step(3))
    files = (TextPart("ok"), ImagePart(b"x" * 10, "image/png"), FilePart(b"y" * 10, "text/csv", "a.csv"))
    records = [await harness.log.append(claim, reply_with_calls(1, *(call.call for call in calls)), calls)]
    for call in calls:
        records.append(await harness.log.start_call(claim, call.n))
        assert await is_what_is_read(harness, records[-1])
        result = ToolResult(call.call.id, files)
        records.append(await harness.log.finish_call(claim, call.n, StepStatus.DONE, result, 0.1))
        assert await is_what_is_read(harness, records[-1])
    records.append(await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(4, assistant("Done."))], ""))
    assert await is_what_is_read(harness, records[-1])
    assert [record.revision for record in records] == sorted({record.revision for record in records})


async def test_the_audit_of_a_call_is_the_same_with_and_without_the_cache(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    granted = GrantUse("g", "test:ana", "Ana", "print")
    first, second = step(2, text="x"), dataclasses.replace(step(3, text="x"), grant=granted)
    await harness.log.append(claim, reply_with_calls(1, first.call, second.call), [first, second])
    for log in (harness.log, SqlTurnLog(harness.database)):  # the second has no cached record of the turn
        for n in (2, 3):
            await log.start_call(claim, n)
            await log.finish_call(
                claim, n, StepStatus.FAILED, ToolResult(f"c{n}", (TextPart("no"),), is_error=True), 0.25
            )
        await harness.database.run(lambda connection: connection.execute(sa.text("update steps set status = 'ready'")))
    told, _ = await SqlReporting(harness.database).audit(AuditQuery(kinds=("ran",)), 9, 0)
    kept = [dataclasses.replace(entry, seq=0, at=0.0, previous="", hash="") for entry in told]
    assert len(kept) == 4
    assert kept[:2] == kept[2:]


async def test_a_turn_that_fails_is_told_as_it_is_read(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    assert await is_what_is_read(harness, await harness.log.append(claim, reply_with_calls(1), []))
    assert await is_what_is_read(
        harness, await harness.log.finish(claim, TurnStatus.FAILED, [], "It broke: \0 \ud800.")
    )


async def test_a_turn_that_ends_with_a_call_open_is_told_how_that_was_settled(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    await harness.log.append(claim, reply_with_calls(1), [step(2), step(3)])
    await harness.log.start_call(claim, 2)
    record = await harness.log.finish(claim, TurnStatus.FAILED, [], "It broke.")
    assert [call.status for call in record.calls] == [StepStatus.UNKNOWN, StepStatus.CANCELLED]
    assert await is_what_is_read(harness, record)


async def test_calls_that_end_side_by_side_are_all_known_in_the_end(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    calls = [step(n) for n in range(2, 8)]
    await harness.log.append(claim, reply_with_calls(1), calls)
    results = [ToolResult(call.call.id, (TextPart("ok"),)) for call in calls]
    ends = [
        harness.log.finish_call(claim, each.n, StepStatus.DONE, result)
        for each, result in zip(calls, results, strict=True)
    ]
    newest = max(await asyncio.gather(*ends), key=lambda record: record.revision)
    assert [call.result for call in newest.calls] == results
    assert await is_what_is_read(harness, newest)
    assert await is_what_is_read(harness, await harness.log.append(claim, reply_with_calls(9), []))


async def test_a_call_that_waits_for_an_approval_is_read(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    waiting = ToolStep(
        3,
        ToolCall("c3", "s__write"),
        ToolRef("s", "write"),
        StepStatus.AWAITING,
        approval=Approval("card-1", 1, "print", ANA, 60.0),
    )
    await harness.log.append(claim, reply_with_calls(1), [step(2), waiting])
    await harness.log.mark_delivered(claim.turn_id, 1)  # starts the approval's time; the revision stays
    record = await harness.log.start_call(claim, 2)
    assert record.calls_awaiting_approval[0].approval is not None
    assert record.calls_awaiting_approval[0].approval.expires_at is not None
    assert await is_what_is_read(harness, record)


async def test_changes_of_another_process_are_read(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    await harness.log.append(claim, reply_with_calls(1), [step(2)])

    def deny(connection: sa.Connection) -> None:
        connection.execute(sa.text("update steps set status = 'denied' where n = 2"))
        connection.execute(sa.text("update deliveries set revision = revision + 1"))

    await harness.database.run(deny)
    record = await harness.log.append(claim, reply_with_calls(3), [])
    assert record.calls[0].status is StepStatus.DENIED
    assert await is_what_is_read(harness, record)


async def test_the_next_process_reads_the_steps_of_the_one_before(harness: Harness) -> None:
    claim = await claim_new_turn(harness)
    await harness.log.append(claim, reply_with_calls(1), [step(2)])
    await harness.log.release([claim])
    (again,) = await harness.log.claim(1)
    record = await harness.log.append(again, reply_with_calls(3), [])
    assert [each.n for each in record.steps] == [1, 2, 3]
    assert await is_what_is_read(harness, record)


def cached_record_count(turn_id: str) -> int:
    """Return the number of records of a turn in memory, without the empty one of its claim."""
    gc.collect()
    return sum(
        type(value) is TurnRecord and value.turn.id == turn_id and bool(value.steps) for value in gc.get_objects()
    )


async def test_a_turn_that_is_not_driven_any_more_is_not_kept_in_memory(harness: Harness) -> None:
    failed = await claim_new_turn(harness)
    await harness.log.append(failed, reply_with_calls(1, step(2).call), [step(2)])
    assert cached_record_count(failed.turn_id)
    await harness.log.fail(failed, "It broke.")
    assert not cached_record_count(failed.turn_id)
    await harness.log.enqueue(message("write", "another"))
    (waiting,) = await harness.log.claim(1)
    card = dataclasses.replace(step(2), status=StepStatus.AWAITING, approval=Approval("card-1", 1, "f", ANA, 60.0))
    await harness.log.append(waiting, reply_with_calls(1, card.call), [card])
    assert await harness.log.suspend(waiting) is None
    assert not cached_record_count(waiting.turn_id)
