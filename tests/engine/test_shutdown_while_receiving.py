"""A stored message is received even if its process leaves or the request is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bot.domain.turns import Claim, Receipt
from bot.engine import worker
from bot.errors import DatabaseError, DatabaseUnavailable
from bot.storage.turn_log.log import SqlTurnLog
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import message, running, until


async def left_while_receiving(harness: EngineHarness, taking: asyncio.Event) -> asyncio.Task[Receipt]:
    """Return the task that receives a message in a process that has left."""
    engine = harness.engine()
    async with running(engine):
        await until(lambda: not engine.worker.capacity.others_wait)
        receiving = asyncio.create_task(engine.receive(message("hi")))
        async with asyncio.timeout(10):
            await taking.wait()
    return receiving


@pytest.mark.parametrize("trouble", [DatabaseError("It is closed."), DatabaseUnavailable("It is away.")])
async def test_a_message_whose_turn_cannot_be_given_back_is_received_all_the_same(
    harness: EngineHarness, trouble: Exception
) -> None:
    taking, go_on = harness.hold_up_taking_in()

    async def failing(_claims: Sequence[Claim]) -> None:
        raise trouble

    receiving = await left_while_receiving(harness, taking)
    harness.log.release = failing  # type: ignore[method-assign, assignment]
    go_on.set()
    async with asyncio.timeout(10):
        receipt = await receiving
    again = SqlTurnLog(harness.database)
    await again.adopt_orphans()
    assert [each.turn_id for each in await again.claim(1)] == [receipt.turn_id]


async def test_a_sender_does_not_wait_for_a_turn_to_be_given_back_by_a_database_that_says_nothing(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking, go_on = harness.hold_up_taking_in()
    receiving = await left_while_receiving(harness, taking)
    monkeypatch.setattr(worker, "HAND_OVER_SECONDS", 0.05)

    async def silent(_claims: Sequence[Claim]) -> None:
        await asyncio.Event().wait()

    harness.log.release = silent  # type: ignore[method-assign, assignment]
    go_on.set()
    async with asyncio.timeout(10):
        receipt = await receiving
    assert (await harness.log.get_view(receipt.turn_id)).turn.question.text == "hi"


async def test_a_cancelled_message_is_one_turn_however_often_it_comes_again(harness: EngineHarness) -> None:
    """The request is cancelled at each await in turn, and the message is delivered again."""
    engine = harness.engine()
    async with running(engine):
        await until(lambda: not engine.worker.capacity.others_wait)
        for steps in range(12):
            receiving = asyncio.create_task(engine.receive(message("hi", f"key-{steps}")))
            for _ in range(steps):
                await asyncio.sleep(0)
            receiving.cancel()
            await asyncio.wait({receiving}, timeout=60)
            harness.model.script.append(RuntimeError("stop here"))
            receipt = await engine.receive(message("hi", f"key-{steps}"))
            await harness.surface.wait_for_end(receipt.turn_id)
        turns = await harness.log.recent_turns(message("").conversation, 100)
    assert len(turns) == 12
    assert len(harness.model.requests) == 12
