"""Where a message was posted, kept by whoever drew it while another process takes its drawing over on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bot.domain.turns import TurnStatus
from bot.domain.views import Drawn, Refs
from bot.errors import LostLease
from tests.fakes.parts import HALL, NEWEST
from tests.ledgers import PostgresLedger, running
from tests.postgres import Server
from tests.storage.test_overlapping import nothing_deadlocked, overlapping

MINE, THEIRS = Drawn("reply", "posted-by-me"), Drawn("reply", "posted-by-them")


@pytest.fixture
async def ledger(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[PostgresLedger]:
    caplog.set_level("DEBUG", "bot.storage.database")
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    ledger = PostgresLedger(await asyncio.to_thread(server.fresh, virtual_clock=True))
    yield ledger
    nothing_deadlocked(caplog)
    await ledger.close()


async def slept(ledger: PostgresLedger, text: str = "hi") -> str:
    """A drawing in hand of a process that has slept past its lease."""
    claim = await running(ledger, text)
    await ledger.log.finish(claim, TurnStatus.DONE, [], "")
    await ledger.log.take(claim.turn_id, NEWEST)
    ledger.time += 100
    return claim.turn_id


async def kept(ledger: PostgresLedger, turn_id: str, drawn: Drawn) -> bool:
    try:
        await ledger.log.keep(turn_id, drawn)
    except LostLease:
        return False
    return True


@pytest.mark.parametrize("before", [None, Drawn("reply", "posted-before")])
@pytest.mark.parametrize("held_up_before", ["update deliveries", "commit"])
async def test_what_another_takes_over_is_kept_no_more(
    ledger: PostgresLedger, before: Drawn | None, held_up_before: str
) -> None:
    turn_id = await slept(ledger)
    if before:
        await ledger.log.keep(turn_id, before)
    other = ledger.another()
    refs, mine = await overlapping(ledger, other.take(turn_id, NEWEST), held_up_before, kept(ledger, turn_id, MINE))
    seen = {MINE.slot: MINE.ref} if mine else {before.slot: before.ref} if before else {}
    assert refs == seen
    await other.keep(turn_id, THEIRS)
    assert not await kept(ledger, turn_id, MINE)
    assert await other.take(turn_id, NEWEST) == {THEIRS.slot: THEIRS.ref}


@pytest.mark.parametrize("held_up_before", ["insert into drawings", "commit"])
async def test_whoever_takes_over_knows_what_was_kept_before(ledger: PostgresLedger, held_up_before: str) -> None:
    turn_id = await slept(ledger)
    mine, refs = await overlapping(
        ledger, kept(ledger, turn_id, MINE), held_up_before, ledger.another().take(turn_id, NEWEST)
    )
    assert refs == ({MINE.slot: MINE.ref} if mine else {})


async def test_of_two_processes_that_race_the_one_that_lost_has_changed_nothing(ledger: PostgresLedger) -> None:
    """Each round has its own turn: whatever comes first, what is on disk is what the one in charge believes."""
    other = ledger.another_process()
    for n in range(30):
        turn_id = await slept(ledger, str(n))
        other.time = ledger.time

        async def takes_over(turn_id: str = turn_id) -> Refs:
            refs = await other.log.take(turn_id, NEWEST)
            await other.log.keep(turn_id, THEIRS)
            return refs

        mine, refs = await asyncio.gather(kept(ledger, turn_id, MINE), takes_over())
        assert refs == ({MINE.slot: MINE.ref} if mine else {})
        assert await other.log.take(turn_id, NEWEST) == {THEIRS.slot: THEIRS.ref}
        await other.log.drawn(turn_id, NEWEST)
    await other.close()


async def test_a_drawing_of_a_conversation_that_is_being_deleted_is_nobodys(ledger: PostgresLedger) -> None:
    turn_id = await slept(ledger)
    author = (await ledger.log.view(turn_id)).turn.author
    deleted, _ = await overlapping(
        ledger, ledger.log.delete_conversation(HALL, author), "delete from conversations", kept(ledger, turn_id, MINE)
    )
    assert deleted
    assert not await kept(ledger, turn_id, MINE)
