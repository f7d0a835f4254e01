"""A summary that is kept while turns that it speaks of are deleted, at the same time on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bot.domain.history import History, HistorySummary
from bot.domain.turns import Claim, TurnStatus
from tests.fakes.parts import HALL, NEWEST
from tests.ledgers import PostgresLedger, running
from tests.postgres import Server
from tests.storage.test_concurrent_turns import nothing_deadlocked, overlapping

LATER = HistorySummary(2, "They spoke of one and two.")


@pytest.fixture
async def ledger(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[PostgresLedger]:
    caplog.set_level("DEBUG", "bot.storage.database")
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    ledger = PostgresLedger(await asyncio.to_thread(server.fresh, virtual_clock=True))
    yield ledger
    nothing_deadlocked(caplog)
    await ledger.close()


async def remembered(ledger: PostgresLedger, before: HistorySummary | None) -> tuple[Claim, History]:
    """A turn that remembers two, the first of which is old."""
    for text in ("one", "two"):
        claim = await running(ledger, text)
        await ledger.log.finish(claim, TurnStatus.DONE, [], "")
        await ledger.log.acquire_delivery(claim.turn_id, NEWEST)
        await ledger.log.mark_delivered(claim.turn_id, NEWEST)
        ledger.time += 100
    claim = await running(ledger, "three")
    if before is not None:
        await ledger.log.save_summary(claim, before, await ledger.log.history(HALL, 3, 9))
    return claim, await ledger.log.history(HALL, 3, 9)


@pytest.mark.parametrize("before", [None, HistorySummary(1, "They began.")])
@pytest.mark.parametrize("held_up_before", ["delete from turns", "delete from summaries", "commit"])
async def test_no_summary_outlives_a_turn_that_is_deleted_while_it_is_kept(
    ledger: PostgresLedger, before: HistorySummary | None, held_up_before: str
) -> None:
    claim, past = await remembered(ledger, before)
    deleting = ledger.log.delete_old(150, 9)
    deleted, _ = await overlapping(ledger, deleting, held_up_before, ledger.log.save_summary(claim, LATER, past))
    assert deleted == 1
    assert (await ledger.log.history(HALL, 3, 9)).summary is None


@pytest.mark.parametrize("before", [None, HistorySummary(1, "They began.")])
@pytest.mark.parametrize("held_up_before", ["insert into summaries", "commit"])
async def test_turns_that_are_deleted_while_a_summary_of_them_is_kept_take_it_with_them(
    ledger: PostgresLedger, before: HistorySummary | None, held_up_before: str
) -> None:
    claim, past = await remembered(ledger, before)
    keeping = ledger.log.save_summary(claim, LATER, past)
    _, deleted = await overlapping(ledger, keeping, held_up_before, ledger.log.delete_old(150, 9))
    assert deleted == 1
    assert (await ledger.log.history(HALL, 3, 9)).summary is None
