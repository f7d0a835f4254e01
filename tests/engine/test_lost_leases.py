from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from bot.domain.completions import Completion
from bot.domain.conversations import ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.tools import ToolOutcome
from bot.domain.turns import Claim, StepStatus, ToolStep, TurnStatus
from bot.errors import DatabaseUnavailable
from bot.ports import CallContext
from bot.storage.database import Rank
from bot.storage.turn_log.log import SqlTurnLog
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import NEWEST, ask_for, call, message, running, say, text_outcome, tool, until

ELSEWHERE = ConversationKey("test", "w", "elsewhere", "1")


async def for_ever(*_: object) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_claim_that_was_under_way_when_the_process_left_is_given_back(harness: EngineHarness) -> None:
    claiming, go_on = asyncio.Event(), asyncio.Event()
    claim = harness.log.claim

    async def slow(*arguments: Any) -> Sequence[Claim]:
        found = await claim(*arguments)
        if found:
            claiming.set()
            await go_on.wait()
        return found

    harness.log.claim = slow  # type: ignore[method-assign, assignment]
    engine = harness.engine()
    task = asyncio.create_task(engine.run())
    receipt = await engine.receive(message("hi"))
    await asyncio.wait_for(claiming.wait(), 10)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({task}, timeout=60)
    harness.log.claim = claim  # type: ignore[method-assign]
    another = SqlTurnLog(harness.database)
    assert await another.acquire_delivery(receipt.turn_id, NEWEST) == {}
    (again,) = await another.claim(1)
    assert (again.turn_id, again.recoveries) == (receipt.turn_id, 0)


async def test_a_turn_taken_over_while_its_process_slept_is_let_go_without_touching_the_new_owners(
    harness: EngineHarness,
) -> None:
    harness.model.script = [for_ever, say("From the new owner.")]
    sleepy = harness.engine()
    harness.log = SqlTurnLog(harness.database)
    awake = harness.engine()
    async with running(sleepy):
        receipt = await sleepy.receive(message("hi"))
        await until(lambda: len(harness.model.requests) == 1)
        await harness.log.adopt_orphans()
        async with running(awake):
            view = await harness.surface.wait_for_end(receipt.turn_id)
            await until(lambda: not sleepy.worker.turns)
    assert view.turn.status is TurnStatus.DONE
    assert (await harness.log.get_view(receipt.turn_id)).turn.status is TurnStatus.DONE


async def test_a_result_is_stored_when_the_database_is_back(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__write"))
    harness.allow("s__write")
    harness.model.script = [ask_for(call("s__write")), say("Done.")]
    run_once = harness.database.run_once
    trouble = [3]

    async def away(transaction: Any, rank: Rank = "ordinary") -> Any:
        if harness.toolbox.calls and trouble[0]:
            trouble[0] -= 1
            raise sa.exc.OperationalError("commit", None, sqlite3.OperationalError("database is locked"))
        return await run_once(transaction, rank)

    harness.database.run_once = away  # type: ignore[method-assign]
    view = await harness.run_turn("go")
    step = next(step for step in view.steps if isinstance(step, ToolStep))
    assert step.status is StepStatus.DONE
    assert len(harness.toolbox.calls) == 1


async def test_no_view_is_delivered_while_the_owner_of_turns_is_unknown(harness: EngineHarness) -> None:
    release = asyncio.Event()

    async def slow(call: ToolCall, context: CallContext) -> ToolOutcome:
        await until(lambda: engine.delivery.is_suspended)
        seen = len(harness.surface.views)
        context.on_progress("still working")
        await asyncio.sleep(0)
        assert len(harness.surface.views) == seen
        release.set()
        return text_outcome(call, "ok")

    harness.toolbox.add(tool("s__read", read_only=True), slow)
    harness.allow("s__read")
    harness.model.script = [ask_for(call("s__read")), say("Done.")]
    now = [0.0]
    engine = harness.engine(clock=lambda: now[0])
    renew = harness.log.renew

    async def away(claims: Sequence[Claim]) -> frozenset[str]:
        now[0] += 4
        if not release.is_set():
            raise DatabaseUnavailable("gone")
        return await renew(claims)

    harness.log.renew = away  # type: ignore[method-assign]
    async with running(engine):
        view = await harness.surface.wait_for_end((await engine.receive(message("go"))).turn_id)
    assert view.turn.status is TurnStatus.DONE


async def test_an_engine_whose_delivery_breaks_down_ends(harness: EngineHarness) -> None:
    async def raise_error(*_: object) -> Sequence[str]:
        raise RuntimeError("bug")

    harness.log.stale_views = raise_error  # type: ignore[method-assign, assignment]
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(10):
            await harness.engine().run()


async def test_nothing_is_drawn_while_the_database_says_nothing_at_all(harness: EngineHarness) -> None:
    """The database raises no error: the heartbeat hangs."""
    hanging, answered = asyncio.Event(), asyncio.Event()
    harness.model.script = [for_ever]
    now = [0.0]
    engine = harness.engine(clock=lambda: now[0])
    harness.log.lease_seconds = 4.2
    renew = harness.log.renew

    async def hangs(claims: Sequence[Claim]) -> frozenset[str]:
        if not answered.is_set():
            now[0] = 12.0
            hanging.set()
            await answered.wait()
        return await renew(claims)

    harness.log.renew = hangs  # type: ignore[method-assign]
    async with running(engine):
        await engine.receive(message("go"))
        await asyncio.wait_for(hanging.wait(), 10)
        await until(lambda: engine.delivery.is_suspended)
        answered.set()
        await until(lambda: not engine.delivery.is_suspended)


async def test_a_claim_that_this_process_slept_over_is_not_begun(harness: EngineHarness) -> None:
    """Another process may have claimed the turn, and its first message must not be posted twice."""
    now = [0.0]
    engine = harness.engine(clock=lambda: now[0])
    harness.log.shares_turns = True
    claim = harness.log.claim

    async def sleeps(*arguments: Any) -> Sequence[Claim]:
        found = await claim(*arguments)
        if found and not now[0]:
            now[0] += 20
            await harness.log.adopt_orphans()
            taken = await elsewhere.claim(1)
            assert [each.turn_id for each in taken] == [each.turn_id for each in found]
            woken.set()
        return found

    woken = asyncio.Event()
    elsewhere = SqlTurnLog(harness.database)
    harness.log.claim = sleeps  # type: ignore[method-assign, assignment]
    async with running(engine):
        await engine.receive(message("go"))
        await asyncio.wait_for(woken.wait(), 10)
        assert not engine.worker.turns
    assert harness.surface.views == []
    assert harness.model.requests == []


async def test_nothing_is_sent_that_others_have_called_unknown_while_this_process_slept(
    harness: EngineHarness,
) -> None:
    now = [0.0]
    harness.toolbox.add(tool("s__write"))
    harness.allow("s__write")
    harness.model.script = [ask_for(call("s__write"))]
    begin = harness.log.start_call
    elsewhere = SqlTurnLog(harness.database)

    async def sleeps(claim: Claim, n: int) -> Any:
        record = await begin(claim, n)
        if not now[0]:
            now[0] += 20
            await harness.log.adopt_orphans()
            (taken,) = await elsewhere.claim(1)
            settled = await elsewhere.resume(taken)
            assert settled.calls[0].status is StepStatus.UNKNOWN
        return record

    harness.log.start_call = sleeps  # type: ignore[method-assign]
    engine = harness.engine(clock=lambda: now[0])
    async with running(engine):
        await engine.receive(message("go"))
        await until(lambda: bool(now[0]) and not engine.worker.turns)
    assert harness.toolbox.calls == []


async def test_leaving_takes_seconds_though_the_database_is_gone(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "worker.HAND_OVER_SECONDS",
        "usage.SETTLE_SECONDS",
        "view_delivery.SHUTDOWN_SECONDS",
        "view_delivery.RELEASE_SECONDS",
    ):
        monkeypatch.setattr(f"bot.engine.{name}", 0.1)
    gone = [False]
    run_once = harness.database.run_once

    async def away(transaction: Any, rank: Rank = "ordinary") -> Any:
        if gone[0]:
            raise sa.exc.OperationalError("begin", None, sqlite3.OperationalError("database is locked"))
        return await run_once(transaction, rank)

    harness.database.run_once = away  # type: ignore[method-assign]
    harness.toolbox.add(tool("s__write"))
    harness.model.script = [for_ever, ask_for(call("s__write"))]
    engine = harness.engine()
    task = asyncio.create_task(engine.run())
    await engine.receive(message("one"))
    await engine.receive(message("two", conversation=ELSEWHERE))
    await until(lambda: len(harness.model.requests) == 2)
    gone[0] = True
    task.cancel()
    async with asyncio.timeout(15):
        await asyncio.wait({task})
    gone[0] = False


async def test_a_tool_that_will_not_end_does_not_keep_the_process_from_leaving_nor_its_turn_free(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.engine.worker.CLEAN_UP_SECONDS", 0.1)
    let_go = asyncio.Event()

    async def deaf(call: ToolCall, _context: CallContext) -> ToolOutcome:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return text_outcome(call, "late")

    harness.toolbox.add(tool("s__write"), deaf)
    harness.allow("s__write")
    harness.model.script = [ask_for(call("s__write")), say("Other.")]
    engine = harness.engine()
    task = asyncio.create_task(engine.run())
    await engine.receive(message("one"))
    await until(lambda: bool(harness.toolbox.calls))
    task.cancel()
    async with asyncio.timeout(15):
        await asyncio.wait({task})
    # The clean-up is not finished: another process must not claim the turn yet.
    assert await SqlTurnLog(harness.database).claim(1) == []
    let_go.set()
