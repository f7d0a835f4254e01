"""Order of turns when capacity is short: stored turns before new messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from bot.domain.completions import Completion, ModelRequest
from bot.domain.conversations import InboundMessage
from bot.domain.turns import Claim, Receipt
from bot.errors import DatabaseUnavailable
from tests.engine.conftest import EngineHarness
from tests.engine.test_receiving import for_ever, looked_round, nth_message, without_claims
from tests.fakes.parts import message, running, say, until


async def test_turns_left_by_an_earlier_process_go_before_new_ones(harness: EngineHarness) -> None:
    left = [await harness.log.enqueue(nth_message(n)) for n in range(9)]
    harness.clock[0] += 1
    harness.model.script = [for_ever] * 12
    looking, claim = asyncio.Event(), harness.log.claim

    async def signal_and_claim(*asked: Any) -> Sequence[Claim]:
        looking.set()
        return await claim(*asked)

    harness.log.claim = signal_and_claim  # type: ignore[method-assign, assignment]
    engine = harness.engine(most_turns=9)
    async with running(engine):
        async with asyncio.timeout(10):
            await looking.wait()
        await asyncio.gather(*(engine.receive(nth_message(100 + n)) for n in range(3)))
        await until(lambda: len(engine.worker.turns) == 9)
        assert set(engine.worker.turns) == {each.turn_id for each in left}


async def test_a_look_that_may_have_missed_a_message_lets_no_other_go_before_it(harness: EngineHarness) -> None:
    """The poll begins before the message is on disk and ends before the message is received."""
    found_nothing, may_end = asyncio.Event(), asyncio.Event()
    on_disk, may_return = asyncio.Event(), asyncio.Event()
    claim, enqueue = harness.log.claim, harness.log.enqueue

    async def slow_look(*asked: Any) -> Sequence[Claim]:
        found = await claim(*asked)
        found_nothing.set()
        await may_end.wait()
        return found

    async def slow_enqueue(received: InboundMessage) -> Receipt:
        receipt = await enqueue(received)
        on_disk.set()
        await may_return.wait()
        return receipt

    harness.model.script = [for_ever] * 4
    engine = harness.engine(most_turns=1)
    async with running(engine):
        await looked_round(engine)
        harness.log.claim = slow_look  # type: ignore[method-assign, assignment]
        engine.poll()
        async with asyncio.timeout(10):
            await found_nothing.wait()
        harness.log.claim, harness.log.enqueue = claim, slow_enqueue  # type: ignore[method-assign, assignment]
        first = asyncio.create_task(engine.receive(nth_message(1)))
        async with asyncio.timeout(10):
            await on_disk.wait()
        harness.log.enqueue = enqueue  # type: ignore[method-assign]
        may_end.set()
        await until(lambda: engine.worker.free_slots == 1)
        harness.clock[0] += 1
        await engine.receive(nth_message(2))
        may_return.set()
        await until(lambda: bool(engine.worker.turns))
        assert tuple(engine.worker.turns) == ((await first).turn_id,)


async def test_a_failed_look_lets_no_turn_go_before_waiting_ones(harness: EngineHarness) -> None:
    claim, failed, may_look = harness.log.claim, asyncio.Event(), asyncio.Event()

    async def away(*_asked: Any) -> Sequence[Claim]:
        if failed.is_set():
            await may_look.wait()
            return await claim(*_asked)
        failed.set()
        raise DatabaseUnavailable("The database is away.")

    harness.model.script = [for_ever] * 2
    engine = harness.engine(most_turns=1)
    async with running(engine):
        await looked_round(engine)
        first = await harness.log.enqueue(nth_message(1))
        harness.log.claim = away  # type: ignore[method-assign, assignment]
        engine.poll()
        await until(lambda: failed.is_set() and engine.worker.capacity.others_wait)
        harness.clock[0] += 1
        await engine.receive(nth_message(2))
        may_look.set()
        await until(lambda: bool(engine.worker.turns))
        assert tuple(engine.worker.turns) == (first.turn_id,)


async def test_ended_turns_are_not_released_when_the_process_leaves(
    harness: EngineHarness,
) -> None:
    """The answer may be in delivery. A process that acquired the delivery then would post it again."""
    given_back: list[Claim] = []
    release = harness.log.release

    async def record_and_release(claims: Sequence[Claim]) -> None:
        given_back.extend(claims)
        await release(claims)

    harness.log.release = record_and_release  # type: ignore[method-assign]

    looks: list[asyncio.Event] = []

    async def last(_request: ModelRequest) -> Completion:
        looks.append(without_claims(harness))
        return say("Done.")

    harness.model.script = [last]
    engine = harness.engine()
    receipt = await harness.log.enqueue(message("hi"))
    async with running(engine):
        await harness.surface.wait_for_end(receipt.turn_id)
        await until(lambda: not engine.worker.turns)
        # The process leaves during a poll that ends soon.
        asyncio.get_running_loop().call_later(0.05, looks[0].set)
    assert given_back == []
