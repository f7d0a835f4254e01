"""Usage of unfinished replies: in any order, across midnight, and from two processes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from bot.domain.completions import StopReason, Usage
from bot.domain.messages import assistant
from bot.domain.turns import Claim, ModelStep, TurnStatus
from bot.domain.usage import UsageEntry, UsageGrouping, UsageKind, UsageQuery, UsageTotal
from bot.storage.reporting import SqlReporting
from bot.storage.turn_log.log import SqlTurnLog
from bot.storage.usage import SqlUsageStore
from tests.fakes.parts import ANA
from tests.turn_log_harness import START, Harness, running

MIDNIGHT = START + 3_600
WHOLE = Usage(1_000, 55, 400, 100, 50)


def estimated_entry(written: int) -> UsageEntry:
    return UsageEntry("u1", 1, UsageKind.REPLY, "m", Usage(900, written), estimated=True)


FINAL = UsageEntry("u1", 1, UsageKind.REPLY, "m", WHOLE)
HALF_COUNTED = UsageEntry("u1", 1, UsageKind.REPLY, "m", Usage(900, 20), estimated=True, final=True)
"""The whole reply of a service that reports no input tokens, and fewer output tokens than estimated."""


def answer(use_id: str) -> ModelStep:
    return ModelStep(1, assistant("Done."), StopReason.ANSWERED, WHOLE, model="m", use=replace(FINAL, id=use_id))


async def since(harness: Harness, moment: float) -> UsageTotal:
    (found,) = await SqlUsageStore(harness.database).totals([UsageQuery(moment)])
    return found


async def of_ana(harness: Harness) -> int:
    return dict(await SqlUsageStore(harness.database).totals_by(UsageQuery(0), UsageGrouping.PERSON))[
        ANA.principal
    ].requests


async def test_notes_in_any_order_leave_the_last_value(harness: Harness) -> None:
    claim = await running(harness)
    for n, order in enumerate(permutations((estimated_entry(10), estimated_entry(40), estimated_entry(400), FINAL))):
        uses = [replace(each, id=f"u{n}") for each in order]
        for use in uses:
            await harness.log.record_usage([(claim, use)])
        for use in reversed(uses):  # again: the response to each COMMIT was lost
            await harness.log.record_usage([(claim, use)])
    rows = 24
    assert await since(harness, 0) == UsageTotal(
        rows, Usage(rows * 1_000, rows * 55, rows * 400, rows * 100, rows * 50), unpriced=rows
    )


async def test_the_last_value_counts_though_it_is_partly_estimated_and_less_than_the_noted_one(
    harness: Harness,
) -> None:
    claim = await running(harness)
    orders = list(permutations((estimated_entry(10), estimated_entry(375), HALF_COUNTED)))
    for n, order in enumerate(orders):
        uses = [replace(each, id=f"u{n}") for each in order]
        for use in (*uses, *reversed(uses)):
            await harness.log.record_usage([(claim, use)])
    rows = len(orders)
    counted = UsageTotal(rows, Usage(rows * 900, rows * 20), unpriced=rows, estimated=rows)
    assert await since(harness, 0) == counted


async def test_a_late_note_changes_nothing_of_a_reply_that_was_kept_with_an_estimate(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.record_usage([(claim, estimated_entry(375))])
    await harness.log.finish(claim, TurnStatus.DONE, [replace(answer("u1"), use=HALF_COUNTED)], "")
    await harness.log.record_usage([(claim, estimated_entry(400))])
    assert await since(harness, 0) == UsageTotal(1, Usage(900, 20), unpriced=1, estimated=1)


@pytest.mark.parametrize("late", [0, 1])
async def test_two_writes_at_once_leave_the_last_word_that_is_estimated_in_part(harness: Harness, late: int) -> None:
    claim = await running(harness)
    await harness.log.record_usage([(claim, estimated_entry(10))])
    both = [estimated_entry(375), HALF_COUNTED]
    async with asyncio.timeout(20):
        await asyncio.gather(*(harness.log.record_usage([(claim, use)]) for use in (both[late], both[1 - late])))
    assert await since(harness, 0) == UsageTotal(1, Usage(900, 20), unpriced=1, estimated=1)


@pytest.mark.parametrize(
    "at_once",
    [(estimated_entry(10), FINAL), (FINAL, estimated_entry(400)), (estimated_entry(40), estimated_entry(10), FINAL)],
)
async def test_two_writes_of_one_request_at_once_are_one_request(
    harness: Harness, at_once: Sequence[UsageEntry]
) -> None:
    claim = await running(harness)
    async with asyncio.timeout(20):
        await asyncio.gather(*(harness.log.record_usage([(claim, use)]) for use in at_once))
    assert await since(harness, 0) == UsageTotal(1, WHOLE, unpriced=1)


async def test_a_reply_over_midnight_counts_on_the_day_it_was_first_noted_and_on_no_other(harness: Harness) -> None:
    harness.time = MIDNIGHT - 2
    claim = await running(harness)
    await harness.log.record_usage([(claim, estimated_entry(10))])
    harness.time = MIDNIGHT + 2
    await harness.log.record_usage([(claim, estimated_entry(40))])
    assert (await since(harness, MIDNIGHT)).requests == 0
    await harness.log.finish(claim, TurnStatus.DONE, [answer("u1")], "")
    assert await since(harness, MIDNIGHT) == UsageTotal()
    assert await since(harness, 0) == UsageTotal(1, WHOLE, unpriced=1)


async def test_a_process_that_lost_the_turn_notes_its_request_beside_that_of_the_next(harness: Harness) -> None:
    before = harness.log
    claim = await running(harness)
    await before.record_usage([(claim, estimated_entry(10))])
    log = await harness.restart()
    (again,) = await log.claim(1)
    # On one file the first process could not write any more. Its log stands for a write in progress.
    late = SqlTurnLog(harness.database)
    await asyncio.gather(
        late.record_usage([(claim, estimated_entry(40))]), log.finish(again, TurnStatus.DONE, [answer("u2")], "")
    )
    await late.record_usage([(claim, estimated_entry(400))])
    assert await since(harness, 0) == UsageTotal(2, Usage(1_900, 455, 400, 100, 50), unpriced=2, estimated=1)
    assert await of_ana(harness) == 2


async def test_a_row_that_was_deleted_while_its_reply_goes_on_is_counted_anew_and_whole(harness: Harness) -> None:
    claim: Claim = await running(harness)
    await harness.log.record_usage([(claim, estimated_entry(10))])
    harness.time += 100
    assert await SqlUsageStore(harness.database).delete_old(50, 10) == 1
    await harness.log.record_usage([(claim, estimated_entry(40))])
    await harness.log.finish(claim, TurnStatus.DONE, [answer("u1")], "")
    assert await since(harness, 0) == UsageTotal(1, WHOLE, unpriced=1)
    assert await of_ana(harness) == 1


async def test_usage_after_the_deletion_of_its_conversation_counts_for_the_asker(harness: Harness) -> None:
    claim = await running(harness)
    await harness.log.finish(claim, TurnStatus.DONE, [answer("u1")], "")
    assert await SqlReporting(harness.database).delete(claim.conversation, ANA)
    await harness.log.record_usage([(claim, replace(estimated_entry(40), id="u2"))])
    assert await of_ana(harness) == 2


async def test_so_it_is_of_a_turn_that_was_taken_up_again(harness: Harness) -> None:
    await running(harness)
    log = await harness.restart()
    (again,) = await log.claim(1)
    assert again.initial_record is None
    await log.finish(again, TurnStatus.DONE, [answer("u1")], "")
    assert await SqlReporting(harness.database).delete(again.conversation, ANA)
    await log.record_usage([(again, replace(estimated_entry(40), id="u2"))])
    assert await of_ana(harness) == 2
