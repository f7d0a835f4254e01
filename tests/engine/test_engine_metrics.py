"""Metrics of view delivery, and the turn that a log line names."""

from __future__ import annotations

import json
import logging

import pytest

from bot.domain.messages import ToolCall
from bot.domain.metrics import Delivered, MetricEvent
from bot.domain.tools import ToolOutcome
from bot.errors import DeliveryFailed
from bot.logs import log_to_stderr
from bot.ports import CallContext
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import HALL, ask_for, call, message, running, say, text_outcome, tool, until


def outcomes(found: list[MetricEvent]) -> list[str]:
    return [each.outcome for each in found if isinstance(each, Delivered) and each.platform == "test"]


async def test_a_drawing_that_is_out_is_measured(harness: EngineHarness) -> None:
    found: list[MetricEvent] = []
    harness.model.script = [say("Hello.")]
    engine = harness.engine(observe=found.append)
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await harness.surface.wait_for_end(receipt.turn_id)
        await until(lambda: bool(found))
    assert set(outcomes(found)) == {"drawn"}


async def test_a_drawing_that_has_to_wait_is_delayed_and_then_drawn(harness: EngineHarness) -> None:
    found: list[MetricEvent] = []
    harness.model.script = [say("Hello.")]
    harness.surface.trouble = [DeliveryFailed("Slow down.", retry_after=0.0)] * 2

    def observe(event: MetricEvent) -> None:
        found.append(event)
        engine.poll()

    engine = harness.engine(observe=observe)
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await harness.surface.wait_for_end(receipt.turn_id)
        await until(lambda: "drawn" in outcomes(found))
    assert outcomes(found)[:3] == ["delayed", "delayed", "drawn"]


async def test_a_view_that_can_never_be_delivered_is_given_up(harness: EngineHarness) -> None:
    found: list[MetricEvent] = []
    harness.model.script = [say("Hello.")]
    harness.surface.trouble = [DeliveryFailed("channel_not_found", permanent=True)] * 20
    engine = harness.engine(observe=found.append)
    async with running(engine):
        await engine.receive(message("hi"))
        await until(lambda: bool(harness.model.requests))
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
    assert set(outcomes(found)) == {"given up"}


async def test_a_bug_in_a_platform_delays_its_views(harness: EngineHarness) -> None:
    found: list[MetricEvent] = []
    harness.model.script = [say("Hello.")]
    harness.surface.trouble = [RuntimeError("a bug")]
    engine = harness.engine(observe=found.append)
    async with running(engine):
        await engine.receive(message("hi"))
        await until(lambda: bool(found))
    assert outcomes(found)[0] == "delayed"


async def test_every_line_of_a_turn_names_it_and_its_conversation(
    harness: EngineHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("info", "json")

    async def speak(asked: ToolCall, _context: CallContext) -> ToolOutcome:
        logging.getLogger("bot.mcp").warning("spoken")
        return text_outcome(asked, "ok")

    harness.toolbox.add(tool("s__speak"), speak)
    harness.allow("s__speak")
    harness.model.script = [ask_for(call("s__speak")), say("Done.")]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await harness.surface.wait_for_end(receipt.turn_id)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (spoken,) = [entry for entry in entries if entry["message"] == "spoken"]
    assert (spoken["turn"], spoken["conversation"]) == (receipt.turn_id, str(HALL))
