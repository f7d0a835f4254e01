from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.domain.audit import AuditQuery
from bot.domain.completions import Completion, StopReason
from bot.domain.messages import ToolCall
from bot.domain.tools import Annotations, ToolOutcome
from bot.domain.turns import ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.errors import NotFound
from bot.ports import CallContext
from bot.rendering.timeline import tool_status
from bot.storage.reporting import SqlReporting
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import (
    ANA,
    BEN,
    Unfinished,
    ask_for,
    call,
    message,
    running,
    say,
    text_outcome,
    tool,
    until,
    words,
)


async def for_ever(*_: object) -> Completion:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_turn_is_stopped_while_the_model_writes(harness: EngineHarness) -> None:
    harness.model.script = [for_ever, say("Next.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("one"))
        await until(lambda: len(harness.model.requests) == 1)
        assert await engine.stop(receipt.turn_id, ANA)
        view = await harness.surface.wait_for_end(receipt.turn_id)
        assert not await engine.stop(receipt.turn_id, ANA)
        await harness.surface.wait_for_end((await engine.receive(message("two"))).turn_id)
    assert view.turn.status is TurnStatus.CANCELLED
    assert view.turn.failure == "Stopped by Ana."
    assert "(I was stopped before I had answered.)" in words(harness.model.requests[1])


async def test_the_written_text_stays_and_the_model_goes_on_from_there(harness: EngineHarness) -> None:
    harness.model.script = [Unfinished("The pool was"), say("halved.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("one"))
        await until(lambda: any(view.streaming for view in harness.surface.views))
        assert await engine.stop(receipt.turn_id, ANA)
        stopped = await harness.surface.wait_for_end(receipt.turn_id)
        again = await engine.continue_turn(receipt.turn_id, BEN)
        assert (await engine.continue_turn(receipt.turn_id, ANA)).turn_id == again.turn_id
        view = await harness.surface.wait_for_end(again.turn_id)
        with pytest.raises(NotFound):
            await engine.continue_turn(again.turn_id, ANA)
    (reply,) = stopped.steps
    assert isinstance(reply, ModelStep)
    assert (reply.message.text, reply.stop) == ("The pool was", StopReason.STOPPED)
    assert view.turn.author == BEN
    assert "The pool was\n(I was stopped here.)" in words(harness.model.requests[1])


async def test_stopping_again_does_not_cut_the_clean_up_and_the_next_turn_waits_for_it(harness: EngineHarness) -> None:
    cleaning, cleaned = asyncio.Event(), asyncio.Event()
    finish_cleaning = asyncio.Event()

    async def tidy(call: ToolCall, _context: CallContext) -> ToolOutcome:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await finish_cleaning.wait()
            cleaned.set()
        return text_outcome(call, "never")

    harness.toolbox.add(tool("s__write"), tidy)
    harness.allow("s__write")
    harness.model.script = [ask_for(call("s__write")), say("Second.")]
    engine = harness.engine()
    async with running(engine):
        first = await engine.receive(message("one"))
        second = await engine.receive(message("two"))
        await until(lambda: bool(harness.toolbox.calls))
        assert await engine.stop(first.turn_id, ANA)
        await asyncio.wait_for(cleaning.wait(), 10)
        for by in (ANA, BEN):
            await engine.stop(first.turn_id, by)
        assert len(harness.model.requests) == 1
        finish_cleaning.set()
        view = await harness.surface.wait_for_end(first.turn_id)
        assert cleaned.is_set()
        await harness.surface.wait_for_end(second.turn_id)
    step = next(step for step in view.steps if isinstance(step, ToolStep))
    assert step.status is StepStatus.UNKNOWN


async def test_a_turn_that_waits_for_an_approval_is_stopped_and_runs_nothing(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add"))]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("save it"))
        await until(lambda: bool(harness.surface.views) and not engine.worker.turns)
        assert await engine.stop(receipt.turn_id, BEN)
        view = await harness.surface.wait_for_end(receipt.turn_id)
    step = next(step for step in view.steps if isinstance(step, ToolStep))
    assert step.status is StepStatus.CANCELLED
    assert harness.toolbox.calls == []


async def test_a_call_that_only_reads_is_stopped_while_it_runs_and_nothing_says_that_it_did_not_run(
    harness: EngineHarness,
) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), for_ever)  # type: ignore[arg-type]
    harness.toolbox.add(tool("s__look", read_only=True))
    harness.allow("s__read")
    harness.model.script = [ask_for(call("s__read"), call("s__look")), say("Second.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("one"))
        await until(lambda: bool(harness.toolbox.calls))
        assert await engine.stop(receipt.turn_id, ANA)
        view = await harness.surface.wait_for_end(receipt.turn_id)
        await harness.surface.wait_for_end((await engine.receive(message("two"))).turn_id)
    read, look = (step for step in view.steps if isinstance(step, ToolStep))
    assert (read.status, read.is_stopped) == (StepStatus.CANCELLED, True)
    assert (look.status, look.is_stopped) == (StepStatus.CANCELLED, False), "it waits for an approval"
    assert tool_status(read, view).state == "stopped while running"
    assert tool_status(look, view).state == "cancelled, not run"
    used = "s__read: stopped while running; s__look: cancelled, not run"
    assert any(used in text for text in words(harness.model.requests[1]))
    assert await audit_kinds(harness) == ["asked", "stopped", "ran cancelled"]


async def test_a_write_that_may_be_repeated_may_have_run_when_it_is_stopped(harness: EngineHarness) -> None:
    idempotent = replace(tool("s__put"), trusted=True, annotations=Annotations(idempotent=True))
    harness.toolbox.add(idempotent, for_ever)  # type: ignore[arg-type]
    harness.allow("s__put")
    harness.model.script = [ask_for(call("s__put"))]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("one"))
        await until(lambda: bool(harness.toolbox.calls))
        assert await engine.stop(receipt.turn_id, ANA)
        view = await harness.surface.wait_for_end(receipt.turn_id)
    (put,) = (step for step in view.steps if isinstance(step, ToolStep))
    assert put.status is StepStatus.UNKNOWN
    assert await audit_kinds(harness) == ["stopped", "ran unknown"]


async def test_a_call_of_a_lost_process_is_not_reported_as_unsent(harness: EngineHarness) -> None:
    step = ToolStep(2, call("s__read"), ToolRef("s", "read", read_only=True), StepStatus.READY, repeatable=True)
    receipt = await harness.log.enqueue(message("one"))
    (claim,) = await harness.log.claim(1)
    await harness.log.append(claim, None, [step])
    await harness.log.adopt_orphans()
    await harness.log.stop(receipt.turn_id, ANA)
    engine = harness.engine()
    async with running(engine):
        view = await harness.surface.wait_for_end(receipt.turn_id)
    (read,) = (step for step in view.steps if isinstance(step, ToolStep))
    assert (read.status, read.is_stopped) == (StepStatus.CANCELLED, True)


async def audit_kinds(harness: EngineHarness) -> list[str]:
    """Return the kinds of the audit entries with the status of calls, oldest first."""
    rows, _ = await SqlReporting(harness.database).audit(AuditQuery(), 100, 0)
    return [" ".join(filter(None, (row.kind, str(row.facts.get("status", ""))))) for row in reversed(rows)]


async def test_leaving_gives_turns_back_and_the_next_start_goes_on_with_them(harness: EngineHarness) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), for_ever)  # type: ignore[arg-type]
    harness.allow("s__read")
    harness.model.script = [ask_for(call("s__read")), say("There.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("go"))
        await until(lambda: bool(harness.toolbox.calls))
    harness.toolbox.add(tool("s__read", read_only=True))
    again = harness.engine()
    async with running(again):
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert view.turn.status is TurnStatus.DONE
    assert len(harness.model.requests) == 2


async def test_a_turn_that_keeps_bringing_the_process_down_ends_as_failed(harness: EngineHarness) -> None:
    receipt = await harness.log.enqueue(message("poison"))
    for _ in range(4):
        assert await harness.log.claim(1)
        await harness.log.adopt_orphans()
    engine = harness.engine()
    async with running(engine):
        view = await harness.surface.wait_for_end(receipt.turn_id)
    assert view.turn.status is TurnStatus.FAILED
    assert view.turn.failure == "This question stopped the bot several times."
    assert harness.model.requests == []
