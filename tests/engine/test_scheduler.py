from __future__ import annotations

import asyncio

import pytest

from bot.domain.turns import TurnStatus
from bot.engine.scheduler import Job, Scheduler, retention
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import HALL, NEWEST, message, running, until


async def test_a_job_is_done_again_when_it_is_due_and_a_failing_one_stops_no_other(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    async def fail() -> None:
        done.append("fail")
        raise RuntimeError("no")

    async def work() -> None:
        done.append("work")

    async def pause(_seconds: float) -> None:
        await asyncio.sleep(0)

    schedule = Scheduler(harness.log, [Job("fail", 60, fail), Job("work", 60, work)], pause=pause)
    async with running(schedule):
        await until(lambda: sorted(done) == ["fail", "work"])
        harness.clock[0] += 61
        await until(lambda: sorted(done) == ["fail", "fail", "work", "work"])
    assert "job 'fail' failed" in caplog.text


async def test_retention_deletes_turns_that_ended_long_ago(harness: EngineHarness) -> None:
    for n in range(3):
        await harness.log.enqueue(message(f"question {n}"))
        (claim,) = await harness.log.claim(1)
        record = await harness.log.finish(claim, TurnStatus.DONE, (), "")
        await harness.log.acquire_delivery(claim.turn_id, NEWEST)
        await harness.log.mark_delivered(claim.turn_id, record.revision)
    harness.clock[0] += 31 * 86400
    await harness.log.enqueue(message("new"))
    await retention(harness.log, 30).do()
    assert [view.turn.question.text for view in await harness.log.recent_turns(HALL, 9)] == ["new"]
