from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.completions import Completion
from bot.domain.messages import ToolCall
from bot.domain.tools import ToolOutcome
from bot.domain.turns import Claim, StepStatus, ToolStep, TurnStatus
from bot.errors import DatabaseUnavailable
from bot.ports import CallContext
from bot.storage.turn_log import SqlTurnLog
from tests.engine.conftest import House
from tests.fakes.parts import ask_for, call, message, returned, running, say, tool, until


async def for_ever(*_: object) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_claim_that_was_under_way_when_the_process_left_is_given_back(house: House) -> None:
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = house.log.claim

    async def slow(*arguments: Any) -> Sequence[Claim]:
        found = await claim(*arguments)
        if found:
            claiming.set()
            await go_on.wait()
        return found

    house.log.claim = slow  # type: ignore[method-assign, assignment]
    engine = house.engine()
    task = asyncio.create_task(engine.run())
    receipt = await engine.receive(message("hi"))
    await asyncio.wait_for(claiming.wait(), 10)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({task}, timeout=10)
    house.log.claim = claim  # type: ignore[method-assign]
    (again,) = await house.log.claim(1)
    assert (again.turn_id, again.recoveries) == (receipt.turn_id, 0)


async def test_a_turn_taken_over_while_its_process_slept_is_let_go_without_touching_the_new_owners(
    house: House,
) -> None:
    house.model.script = [for_ever, say("From the new owner.")]
    sleepy = house.engine()
    house.log = SqlTurnLog(house.database)
    awake = house.engine()
    async with running(sleepy):
        receipt = await sleepy.receive(message("hi"))
        await until(lambda: len(house.model.requests) == 1)
        await house.log.adopt_orphans()
        async with running(awake):
            view = await house.surface.ended(receipt.turn_id)
            await until(lambda: not sleepy._worker._held)
    assert view.turn.status is TurnStatus.DONE
    assert (await house.log.view(receipt.turn_id)).turn.status is TurnStatus.DONE


async def test_what_a_tool_returned_is_written_down_when_the_database_is_back(house: House) -> None:
    house.toolbox.add(tool("s__write"))
    house.allow("s__write")
    house.model.script = [ask_for(call("s__write")), say("Done.")]
    run_once = house.database.run_once
    trouble = [3]

    async def away(transaction: Any) -> Any:
        if house.toolbox.calls and trouble[0]:
            trouble[0] -= 1
            raise sa.exc.OperationalError("commit", None, sqlite3.OperationalError("database is locked"))
        return await run_once(transaction)

    house.database.run_once = away  # type: ignore[method-assign]
    engine = house.engine()
    async with running(engine):
        view = await house.surface.ended((await engine.receive(message("go"))).turn_id)
    step = next(step for step in view.steps if isinstance(step, ToolStep))
    assert step.status is StepStatus.DONE
    assert len(house.toolbox.calls) == 1


async def test_nothing_is_drawn_while_nobody_knows_whose_the_turns_are(house: House) -> None:
    release = asyncio.Event()

    async def slow(call: ToolCall, context: CallContext) -> ToolOutcome:
        await until(lambda: engine._drawings._suspended)
        seen = len(house.surface.views)
        context.on_progress("still working")
        await asyncio.sleep(0)
        assert len(house.surface.views) == seen
        release.set()
        return returned(call, "ok")

    house.toolbox.add(tool("s__read", read_only=True), slow)
    house.allow("s__read")
    house.model.script = [ask_for(call("s__read")), say("Done.")]
    engine = house.engine()
    now = [0.0]
    engine._worker.clock = lambda: now[0]
    house.log.lease_seconds = 15.0
    renew = house.log.renew

    async def away(held: Sequence[Claim]) -> frozenset[str]:
        now[0] += 4
        if not release.is_set():
            raise DatabaseUnavailable("gone")
        return await renew(held)

    house.log.renew = away  # type: ignore[method-assign]
    async with running(engine):
        view = await house.surface.ended((await engine.receive(message("go"))).turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_an_engine_whose_drawing_breaks_down_ends_instead_of_looking_alive(house: House) -> None:
    async def broken(*_: object) -> Sequence[str]:
        raise RuntimeError("bug")

    house.log.undrawn = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(10):
            await house.engine().run()
