"""Messages that arrive go before turns while they are many, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from bot.domain import arrivals
from bot.domain.arrivals import LONGEST_SECONDS, MANY, Arrivals
from tests.engine.conftest import EngineHarness
from tests.engine.test_receiving import looked_round, nth_message
from tests.fakes.parts import running, say


def test_a_steady_stream_of_messages_leaves_other_work_half_of_the_time() -> None:
    clock = [1000.0]
    arriving = Arrivals(lambda: clock[0])
    waited = 0
    with ExitStack() as stream:
        for _ in range(MANY):
            assert not arriving.go_first
            stream.enter_context(arriving.one())
        for tenth in range(1000):
            clock[0] = 1000.0 + tenth / 10
            waited += arriving.go_first
    assert 0 < waited <= 500 + LONGEST_SECONDS * 10
    assert not arriving.go_first


async def test_turns_and_waiting_messages_go_on_when_few_messages_arrive() -> None:
    arriving = Arrivals(lambda: 1000.0)
    with ExitStack() as stream:
        for _ in range(MANY):
            stream.enter_context(arriving.one())
        waiting = asyncio.create_task(arriving.wait())
        for _ in range(5):  # rounds in which it would end if nothing held it
            await asyncio.sleep(0)
        assert not waiting.done()
    async with asyncio.timeout(2):
        await waiting


async def test_messages_are_stored_at_once_and_their_turns_run_although_many_more_keep_arriving(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "LONGEST_SECONDS", 0.5)
    harness.model.script = [say(f"{n}") for n in range(8)]
    engine = harness.engine()
    async with running(engine):
        await looked_round(engine)
        with ExitStack() as stream:
            for _ in range(MANY):
                stream.enter_context(engine.arrivals.one())
            receipts = await asyncio.gather(*(engine.receive(nth_message(n)) for n in range(8)))
            assert not engine.worker.turns
            harness.clock[0] += 0.6
            for receipt in receipts:
                await harness.surface.wait_for_end(receipt.turn_id)
