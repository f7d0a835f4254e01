"""A summary that is saved during the deletion of turns it covers, on PostgreSQL."""

from __future__ import annotations

import pytest

from bot.domain.turns import Claim, History, HistorySummary, TurnStatus
from tests.fakes.parts import HALL, NEWEST
from tests.storage.test_concurrent_turns import overlapping
from tests.turn_log_harness import PostgresHarness, running

LATER = HistorySummary(2, "They spoke of one and two.")


pytestmark = pytest.mark.usefixtures("no_deadlocks")


async def store_turns(harness: PostgresHarness, before: HistorySummary | None) -> tuple[Claim, History]:
    """Store a turn with two earlier turns, the first of them old. Return its claim and history."""
    for text in ("one", "two"):
        claim = await running(harness, text)
        await harness.log.finish(claim, TurnStatus.DONE, [], "")
        await harness.log.acquire_delivery(claim.turn_id, NEWEST)
        await harness.log.mark_delivered(claim.turn_id, NEWEST)
        harness.time += 100
    claim = await running(harness, "three")
    if before is not None:
        await harness.log.save_summary(claim, before, await harness.log.history(HALL, 3, 9))
    return claim, await harness.log.history(HALL, 3, 9)


@pytest.mark.parametrize("before", [None, HistorySummary(1, "They began.")])
@pytest.mark.parametrize("held_up_before", ["delete from turns", "delete from summaries", "commit"])
async def test_no_summary_outlives_a_turn_that_is_deleted_while_it_is_stored(
    harness: PostgresHarness, before: HistorySummary | None, held_up_before: str
) -> None:
    claim, past = await store_turns(harness, before)
    deleting = harness.log.delete_old(150, 9)
    deleted, _ = await overlapping(harness, deleting, held_up_before, harness.log.save_summary(claim, LATER, past))
    assert deleted == 1
    assert (await harness.log.history(HALL, 3, 9)).summary is None


@pytest.mark.parametrize("before", [None, HistorySummary(1, "They began.")])
@pytest.mark.parametrize("held_up_before", ["insert into summaries", "commit"])
async def test_turns_that_are_deleted_while_a_summary_of_them_is_kept_take_it_with_them(
    harness: PostgresHarness, before: HistorySummary | None, held_up_before: str
) -> None:
    claim, past = await store_turns(harness, before)
    keeping = harness.log.save_summary(claim, LATER, past)
    _, deleted = await overlapping(harness, keeping, held_up_before, harness.log.delete_old(150, 9))
    assert deleted == 1
    assert (await harness.log.history(HALL, 3, 9)).summary is None
