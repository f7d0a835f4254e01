"""Where a message was posted, kept by whoever drew it while another process takes its drawing over on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bot.domain.turns import TurnStatus
from bot.domain.views import MessageRefs, PostedMessage
from bot.errors import LostLease
from tests.fakes.parts import HALL, NEWEST
from tests.ledgers import PostgresLedger, running
from tests.postgres import Server
from tests.storage.test_concurrent_turns import nothing_deadlocked, overlapping

MINE, THEIRS = PostedMessage("reply", "posted-by-me"), PostedMessage("reply", "posted-by-them")


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
    await ledger.log.acquire_delivery(claim.turn_id, NEWEST)
    ledger.time += 100
    return claim.turn_id


async def kept(ledger: PostgresLedger, turn_id: str, drawn: PostedMessage) -> bool:
    try:
        await ledger.log.save_message_ref(turn_id, drawn)
    except LostLease:
        return False
    return True


@pytest.mark.parametrize("before", [None, PostedMessage("reply", "posted-before")])
@pytest.mark.parametrize("held_up_before", ["update deliveries", "commit"])
async def test_what_another_takes_over_is_kept_no_more(
    ledger: PostgresLedger, before: PostedMessage | None, held_up_before: str
) -> None:
    turn_id = await slept(ledger)
    if before:
        await ledger.log.save_message_ref(turn_id, before)
    other = ledger.another()
    refs, mine = await overlapping(
        ledger, other.acquire_delivery(turn_id, NEWEST), held_up_before, kept(ledger, turn_id, MINE)
    )
    seen = {MINE.slot: MINE.ref} if mine else {before.slot: before.ref} if before else {}
    assert refs == seen
    await other.save_message_ref(turn_id, THEIRS)
    assert not await kept(ledger, turn_id, MINE)
    assert await other.acquire_delivery(turn_id, NEWEST) == {THEIRS.slot: THEIRS.ref}


@pytest.mark.parametrize("held_up_before", ["insert into message_refs", "commit"])
async def test_whoever_takes_over_knows_what_was_kept_before(ledger: PostgresLedger, held_up_before: str) -> None:
    turn_id = await slept(ledger)
    mine, refs = await overlapping(
        ledger, kept(ledger, turn_id, MINE), held_up_before, ledger.another().acquire_delivery(turn_id, NEWEST)
    )
    assert refs == ({MINE.slot: MINE.ref} if mine else {})


async def test_of_two_processes_that_race_the_one_that_lost_has_changed_nothing(ledger: PostgresLedger) -> None:
    """Each round has its own turn: whatever comes first, what is on disk is what the one in charge believes."""
    other = ledger.another_process()
    for n in range(30):
        turn_id = await slept(ledger, str(n))
        other.time = ledger.time

        async def takes_over(turn_id: str = turn_id) -> MessageRefs:
            refs = await other.log.acquire_delivery(turn_id, NEWEST)
            await other.log.save_message_ref(turn_id, THEIRS)
            return refs

        mine, refs = await asyncio.gather(kept(ledger, turn_id, MINE), takes_over())
        assert refs == ({MINE.slot: MINE.ref} if mine else {})
        assert await other.log.acquire_delivery(turn_id, NEWEST) == {THEIRS.slot: THEIRS.ref}
        await other.log.mark_delivered(turn_id, NEWEST)
    await other.close()


async def test_a_drawing_of_a_conversation_that_is_being_deleted_is_nobodys(ledger: PostgresLedger) -> None:
    turn_id = await slept(ledger)
    author = (await ledger.log.get_view(turn_id)).turn.author
    deleted, _ = await overlapping(
        ledger, ledger.log.delete_conversation(HALL, author), "delete from conversations", kept(ledger, turn_id, MINE)
    )
    assert deleted
    assert not await kept(ledger, turn_id, MINE)
