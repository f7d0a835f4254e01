"""Rows that cannot be read, because a later release or an operator wrote them. Only their own turn fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.completions import StopReason
from bot.domain.conversations import ConversationKey
from bot.domain.messages import assistant
from bot.domain.turns import ModelStep, TurnStatus
from bot.errors import DatabaseError
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import HALL, ask_for, call, message, running, say, tool, until, words

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")


async def change(harness: EngineHarness, statement: str) -> None:
    await harness.database.run(lambda connection: connection.exec_driver_sql(statement).rowcount)


async def status_of(harness: EngineHarness, turn_id: str) -> tuple[str, str, int]:
    read = sa.text("select status, failure, fence from turns where id = :t").bindparams(t=turn_id)
    row = await harness.database.run(lambda connection: connection.execute(read).one())
    return row.status, row.failure, row.fence


async def final_status(harness: EngineHarness, turn_id: str) -> tuple[str, str, int]:
    async with asyncio.timeout(10):
        while (found := await status_of(harness, turn_id))[0] not in ("done", "failed", "cancelled"):
            await asyncio.sleep(0.005)
    return found


async def begun(harness: EngineHarness) -> str:
    """Store a released turn with one model step. Return its id."""
    receipt = await harness.log.enqueue(message("spoilt"))
    (claim,) = await harness.log.claim(1)
    await harness.log.append(claim, ModelStep(1, assistant("half"), StopReason.TOOLS), [])
    await harness.log.release([claim])
    return receipt.turn_id


async def test_a_turn_with_unreadable_steps_ends_as_failed_and_others_go_on(harness: EngineHarness) -> None:
    spoilt = await begun(harness)
    await change(harness, "update steps set body = '{\"v\": 9}'")
    harness.model.script = [say("Fine.")]
    engine = harness.engine()
    async with running(engine):
        other = await engine.receive(message("hi", conversation=ELSEWHERE))
        view = await harness.surface.wait_for_end(other.turn_id)
        status, failure, fence = await final_status(harness, spoilt)
    assert view.turn.status is TurnStatus.DONE
    assert (status, fence) == ("failed", 2)
    assert "Something broke on my end" in failure


async def test_a_question_that_cannot_be_read_holds_up_no_other_question(harness: EngineHarness) -> None:
    spoilt = await harness.log.enqueue(message("spoilt"))
    await change(harness, "update turns set input = '{}'")
    harness.model.script = [say("Fine.")]
    engine = harness.engine()
    async with running(engine):
        other = await engine.receive(message("hi", conversation=ELSEWHERE))
        await harness.surface.wait_for_end(other.turn_id)
        assert (await final_status(harness, spoilt.turn_id))[0] == "failed"


async def test_an_end_that_cannot_be_read_keeps_no_other_end_undrawn_and_is_tried_ever_more_rarely(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt = await begun(harness)
    await harness.log.stop(spoilt, message("x").author)
    await change(harness, "update steps set body = '{\"v\": 9}'")
    harness.model.script = [say("Fine.")]
    engine = harness.engine()
    postpone = harness.log.retry_delivery_at
    postponed: list[float] = []

    async def record_and_postpone(turn_id: str, seconds: float) -> None:
        await postpone(turn_id, seconds)
        postponed.append(seconds)

    looks, stale_views = 0, harness.log.stale_views

    async def count_poll(prefix: str, limit: int) -> Sequence[str]:
        nonlocal looks
        found = await stale_views(prefix, limit)
        looks += 1
        return found

    harness.log.retry_delivery_at = record_and_postpone  # type: ignore[method-assign]
    harness.log.stale_views = count_poll  # type: ignore[method-assign, assignment]
    async with running(engine):
        for tries in range(1, 4):
            await until(lambda tries=tries: len(postponed) == tries)  # type: ignore[misc]
            assert caplog.text.count("cannot be read") == tries
            # The view is due again after 5, 10 and 20 seconds, and not one second earlier.
            harness.clock[0] += 5 * 2 ** (tries - 1) - 1
            seen = looks
            engine.poll()
            await until(lambda seen=seen: looks > seen)  # type: ignore[misc]
            assert await stale_views("test:", 1) == []
            harness.clock[0] += 1
            engine.poll()
        other = await engine.receive(message("hi", conversation=ELSEWHERE))
        view = await harness.surface.wait_for_end(other.turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_an_unreadable_earlier_turn_is_left_out_of_the_prompt(
    harness: EngineHarness,
) -> None:
    harness.model.script = [say("One."), say("Two."), say("Three.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("first"))
        await harness.surface.wait_for_end(first.turn_id)
        await harness.surface.wait_for_end((await engine.receive(message("second"))).turn_id)
        await change(harness, f"update steps set body = '{{}}' where turn_id = '{first.turn_id}'")
        await change(harness, "update deliveries set revision = revision + 1, delivered_revision = revision + 1")
        view = await harness.surface.wait_for_end((await engine.receive(message("third"))).turn_id)
    assert view.turn.status is TurnStatus.DONE
    told = words(harness.model.requests[2])
    assert "Two." in told
    assert "One." not in told


async def test_a_turn_that_cannot_be_ended_is_kept_in_hand_and_not_claimed_over_and_over(
    harness: EngineHarness,
) -> None:
    broken = [True]

    async def refuse(*_: Any) -> Any:
        if broken[0]:
            raise DatabaseError("The database says no.")
        return await fail(*_)

    fail = harness.log.fail
    harness.log.finish = refuse  # type: ignore[method-assign, assignment]
    harness.log.fail = refuse  # type: ignore[method-assign, assignment]
    harness.toolbox.add(tool("s__read", read_only=True))
    harness.allow("s__read")
    harness.model.script = [ask_for(call("s__read")), say("Never recorded.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await until(lambda: len([pause for pause in harness.pauses if pause > 5]) >= 4)
        assert (await status_of(harness, receipt.turn_id))[2] == 1
        assert [pause for pause in harness.pauses if pause > 5][:4] == [8.0, 16.0, 32.0, 60.0]
        broken[0] = False
        assert (await final_status(harness, receipt.turn_id))[0] == "failed"
    assert len(harness.model.requests) == 2
    assert [view.turn.question.text for view in await harness.log.recent_turns(HALL, 9)] == ["hi"]
