"""Messages that are stored and claimed in one transaction, on each database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from bot.domain.conversations import ConversationKey
from bot.domain.turns import PostedMessage, Receipt, TurnStatus
from bot.errors import LostLease
from bot.storage.database import Rank
from bot.storage.tables import deliveries, turns
from tests.fakes.parts import NEWEST, message
from tests.turn_log_harness import Harness, running

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")


async def row(harness: Harness, turn_id: str) -> list[Any]:
    """Return the stored rows of a turn and its delivery, without ids and input."""

    def read(connection: sa.Connection) -> list[Any]:
        turn = connection.execute(sa.select(turns).where(turns.c.id == turn_id)).one()._asdict()
        delivery = connection.execute(sa.select(deliveries).where(deliveries.c.turn_id == turn_id)).one()._asdict()
        return [
            {name: value for name, value in found.items() if name not in ("id", "turn_id", "conversation", "input")}
            for found in (turn, delivery)
        ]

    return await harness.database.run(read)


async def test_a_turn_that_nothing_is_ahead_of_is_claimed_with_its_drawing(harness: Harness) -> None:
    receipt, claim = await harness.log.enqueue_and_claim(message("hi"))
    assert claim is not None
    assert receipt == Receipt(claim.turn_id)
    assert (claim.fencing_token, claim.recoveries) == (1, 0)
    assert claim.initial_record is not None
    assert claim.initial_record.turn == (await harness.log.get_view(claim.turn_id)).turn
    assert (claim.initial_record.turn.status, claim.initial_record.turn.question.text) == (TurnStatus.RUNNING, "hi")
    assert (claim.initial_record.steps, claim.initial_record.revision) == ((), 0)
    await harness.log.save_message_ref(claim.turn_id, PostedMessage("answer", "posted-1"))
    ended = await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert ended.turn.status is TurnStatus.DONE


async def test_it_is_as_if_it_had_been_claimed_afterwards(harness: Harness) -> None:
    receipt, _ = await harness.log.enqueue_and_claim(message("one"))
    other = await harness.log.enqueue(message("two", conversation=ELSEWHERE))
    assert len(await harness.log.claim(8, holding=[receipt.turn_id])) == 1
    assert await row(harness, receipt.turn_id) == await row(harness, other.turn_id)


async def test_a_turn_that_has_to_wait_is_not(harness: Harness) -> None:
    first = await running(harness, "one")
    receipt, claim = await harness.log.enqueue_and_claim(message("two"))
    assert (receipt.queue_position, claim) == (1, None)
    view = await harness.log.get_view(receipt.turn_id)
    assert (view.turn.status, view.ahead) == (TurnStatus.QUEUED, 1)
    assert await harness.log.stale_views("test:", 8) == [receipt.turn_id]
    await harness.log.finish(first, TurnStatus.DONE, [], "")
    assert [each.turn_id for each in await harness.log.claim(8)] == [receipt.turn_id]


async def test_a_message_that_was_seen_before_begins_nothing(harness: Harness) -> None:
    receipt, claim = await harness.log.enqueue_and_claim(message("hi", "key-1"))
    assert claim is not None
    again, none = await harness.log.enqueue_and_claim(message("hi", "key-1"))
    assert (again, none) == (Receipt(receipt.turn_id, redelivery=True), None)
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert await harness.log.enqueue_and_claim(message("hi", "key-1")) == (again, None)
    assert await harness.log.claim(8) == []


async def test_a_message_received_by_a_process_that_died_is_continued(harness: Harness) -> None:
    _, claim = await harness.log.enqueue_and_claim(message("hi"))
    assert claim is not None
    (again,) = await (await harness.restart()).claim(8)
    assert (again.turn_id, again.fencing_token, again.recoveries) == (claim.turn_id, 2, 1)
    with pytest.raises(LostLease):
        await harness.log.start_call(claim, 1)


async def test_a_message_whose_commit_had_no_answer_is_one_turn_and_no_redelivery(harness: Harness) -> None:
    run_once = harness.database.run_once

    async def twice(transaction: Callable[[sa.Connection], object], rank: Rank = "ordinary") -> object:
        await run_once(transaction, rank)
        return await run_once(transaction, rank)

    harness.database.run_once = twice  # type: ignore[method-assign, assignment]
    receipt, claim = await harness.log.enqueue_and_claim(message("hi"))
    assert (receipt.redelivery, receipt.queue_position, claim) == (False, 0, None)
    (found,) = await harness.log.claim(8)
    assert found.turn_id == receipt.turn_id


async def test_while_a_message_is_taken_in_a_look_round_does_not_claim_it_as_well(harness: Harness) -> None:
    committed, go_on = asyncio.Event(), asyncio.Event()
    run_once = harness.database.run_once

    async def slow(transaction: Callable[[sa.Connection], Any], rank: Rank = "ordinary") -> Any:
        done = await run_once(transaction, rank)
        if not committed.is_set():
            committed.set()
            await go_on.wait()
        return done

    harness.database.run_once = slow  # type: ignore[method-assign]
    taking = asyncio.create_task(harness.log.enqueue_and_claim(message("hi")))
    async with asyncio.timeout(10):
        await committed.wait()
        assert await harness.log.claim(8) == []
        go_on.set()
        _, claim = await taking
    assert claim is not None
    assert await harness.log.claim(8, holding=[claim.turn_id]) == []


async def test_a_repeated_claim_does_not_claim_messages_received_meanwhile(harness: Harness) -> None:
    committed, go_on = asyncio.Event(), asyncio.Event()
    run_once = harness.database.run_once
    taking: list[asyncio.Task[Any]] = []

    async def slow(transaction: Callable[[sa.Connection], Any], rank: Rank = "ordinary") -> Any:
        done = await run_once(transaction, rank)
        if not committed.is_set():
            committed.set()
            await go_on.wait()
        return done

    async def fail_transaction(_transaction: Callable[[sa.Connection], Any], rank: Rank = "ordinary") -> Any:
        harness.database.run_once = slow  # type: ignore[method-assign]
        taking.append(asyncio.create_task(harness.log.enqueue_and_claim(message("hi"))))
        await committed.wait()
        raise IntegrityError("another turn there is active", None, Exception())

    harness.database.run_once = fail_transaction  # type: ignore[method-assign, assignment]
    async with asyncio.timeout(10):
        assert await harness.log.claim(8) == []
        go_on.set()
        _, claim = await taking[0]
    assert claim is not None
    await harness.log.finish(claim, TurnStatus.DONE, [], "")


async def test_a_claimed_delivery_has_one_owner(harness: Harness) -> None:
    _, claim = await harness.log.enqueue_and_claim(message("hi"))
    assert claim is not None
    await harness.log.finish(claim, TurnStatus.DONE, [], "")
    assert await harness.log.stale_views("test:", 8) == [claim.turn_id]
    assert await harness.log.acquire_delivery(claim.turn_id, NEWEST) == {}
