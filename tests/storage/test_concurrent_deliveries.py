"""Message refs, saved while another process takes over the delivery on PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest

from bot.domain.turns import MessageRefs, PostedMessage, TurnStatus
from bot.errors import LostLease
from bot.storage.reporting import SqlReporting
from tests.fakes.parts import HALL, NEWEST
from tests.storage.test_concurrent_turns import overlapping
from tests.turn_log_harness import PostgresHarness, running

MINE, THEIRS = PostedMessage("reply", "posted-by-me"), PostedMessage("reply", "posted-by-them")


pytestmark = pytest.mark.usefixtures("no_deadlocks")


async def store_expired_turn(harness: PostgresHarness, text: str = "hi") -> str:
    """Store a turn with a delivery lease that expired while its process slept. Return its id."""
    claim = await running(harness, text)
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    await harness.log.acquire_delivery(claim.turn_id, NEWEST)
    harness.time += 100
    return claim.turn_id


async def try_save_message(harness: PostgresHarness, turn_id: str, drawn: PostedMessage) -> bool:
    try:
        await harness.log.save_message_ref(turn_id, drawn)
    except LostLease:
        return False
    return True


@pytest.mark.parametrize("before", [None, PostedMessage("reply", "posted-before")])
@pytest.mark.parametrize("held_up_before", ["update deliveries", "commit"])
async def test_a_turn_that_another_process_takes_over_leaves_the_cache(
    harness: PostgresHarness, before: PostedMessage | None, held_up_before: str
) -> None:
    turn_id = await store_expired_turn(harness)
    if before:
        await harness.log.save_message_ref(turn_id, before)
    other = harness.another()
    refs, mine = await overlapping(
        harness, other.acquire_delivery(turn_id, NEWEST), held_up_before, try_save_message(harness, turn_id, MINE)
    )
    seen = {MINE.slot: MINE.ref} if mine else {before.slot: before.ref} if before else {}
    assert refs == seen
    await other.save_message_ref(turn_id, THEIRS)
    assert not await try_save_message(harness, turn_id, MINE)
    assert await other.acquire_delivery(turn_id, NEWEST) == {THEIRS.slot: THEIRS.ref}


@pytest.mark.parametrize("held_up_before", ["insert into message_refs", "commit"])
async def test_the_process_that_takes_over_knows_what_was_stored_before(
    harness: PostgresHarness, held_up_before: str
) -> None:
    turn_id = await store_expired_turn(harness)
    mine, refs = await overlapping(
        harness,
        try_save_message(harness, turn_id, MINE),
        held_up_before,
        harness.another().acquire_delivery(turn_id, NEWEST),
    )
    assert refs == ({MINE.slot: MINE.ref} if mine else {})


async def test_of_two_processes_that_race_the_one_that_lost_has_changed_nothing(harness: PostgresHarness) -> None:
    """Each round has its own turn. In any order, the stored refs are those of the process that holds the delivery."""
    other = harness.another_process()
    for n in range(30):
        turn_id = await store_expired_turn(harness, str(n))
        other.time = harness.time

        async def takes_over(turn_id: str = turn_id) -> MessageRefs:
            refs = await other.log.acquire_delivery(turn_id, NEWEST)
            await other.log.save_message_ref(turn_id, THEIRS)
            return refs

        mine, refs = await asyncio.gather(try_save_message(harness, turn_id, MINE), takes_over())
        assert refs == ({MINE.slot: MINE.ref} if mine else {})
        assert await other.log.acquire_delivery(turn_id, NEWEST) == {THEIRS.slot: THEIRS.ref}
        await other.log.mark_delivered(turn_id, NEWEST)
    await other.close()


async def test_a_drawing_of_a_conversation_that_is_being_deleted_is_nobodys(harness: PostgresHarness) -> None:
    turn_id = await store_expired_turn(harness)
    author = (await harness.log.get_view(turn_id)).turn.author
    deleted, _ = await overlapping(
        harness,
        SqlReporting(harness.database).delete(HALL, author),
        "delete from conversations",
        try_save_message(harness, turn_id, MINE),
    )
    assert deleted
    assert not await try_save_message(harness, turn_id, MINE)
