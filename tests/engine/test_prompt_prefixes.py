"""Stable beginnings of prompts: each request begins like the one before it, because services cache prefixes."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest

from bot.domain.completions import Capabilities, Completion, ModelRequest
from bot.domain.conversations import Attachment, InboundMessage
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import CallReturned, ServerGuidance, ToolOutcome
from bot.domain.turns import ToolReplay
from bot.engine.prompt.history import HistoryBudget
from bot.engine.prompt.messages import PlatformHint, SystemPrompt
from bot.errors import ModelRejected
from tests.engine.conftest import EngineHarness
from tests.engine.test_history import LONG, SHORT, is_summary, numbered_questions, talk
from tests.fakes.parts import ANA, BEN, HALL, ask_for, call, message, running, say, tool


def steady(request: ModelRequest) -> object:
    return request.messages[: request.stable_messages]


async def return_long_text(wanted: ToolCall, _: object) -> ToolOutcome:
    return CallReturned(ToolResult(wanted.id, (TextPart("found " * 1_000),)))


@pytest.mark.parametrize("replay", list(ToolReplay))
@pytest.mark.parametrize("shared", [True, False])
async def test_after_any_event_the_next_request_begins_with_the_one_before(
    harness: EngineHarness, replay: ToolReplay, shared: bool
) -> None:
    harness.toolbox.add(tool("s__read", read_only=True), return_long_text)
    harness.toolbox.add(tool("s__find", read_only=True), return_long_text)
    harness.toolbox.guidance = (ServerGuidance("s", "Mind s.", "Say where it is from.", auto_context_tool="s__find"),)
    harness.allow("s__read", "s__find")
    harness.model.capabilities = Capabilities(images=True, documents=True)
    harness.surface.files.update(a=b"\x89PNG\r\n\x1a\n", b=b"%PDF-", c=b"text")
    files = [
        Attachment(name, f"{name}.bin", kind, 9)
        for name, kind in (("a", "image/png"), ("b", "application/pdf"), ("c", "text/plain"))
    ]
    reads = ask_for(call("s__read", "r1"), call("s__no", "r2"))
    harness.model.script = [
        reads,
        say("One."),
        reads,
        reads,
        say("Two."),
        ModelRejected("Not this."),
        say(""),
        say("Five."),
    ]
    engine = harness.engine(
        memory=HistoryBudget(replay=replay),
        instructions=SystemPrompt(
            "P", {"test": PlatformHint("Draws.", shared=shared)}, today=lambda _zone: date(2026, 11, 22)
        ),
    )
    by_hand = InboundMessage(("by hand",), HALL, ANA, "Run it", call=ToolCall("c1", "s__read"))
    async with running(engine):
        for said in (
            message("with files", attachments=files),
            InboundMessage(("ben",), HALL, BEN, "what did they say?", context=("Ana: hi", "Sam: no")),
            by_hand,
            message("this fails"),
            message("this is empty"),
            message("and the end"),
        ):
            harness.toolbox.absent = ("s2 is away.",) if said.text == "this fails" else ()
            receipt = await engine.receive(said)
            await harness.surface.wait_for_end(receipt.turn_id)
    requests = harness.model.requests
    assert len(requests) == 8
    for earlier, later in pairwise(requests):
        assert later.messages[: earlier.stable_messages] == steady(earlier)
        assert later.tools[: len(earlier.tools)] == earlier.tools
    rounds = ((0, 1), (2, 3), (3, 4))
    for first, second in rounds:
        assert requests[second].messages[: len(requests[first].messages)] == requests[first].messages


async def test_between_two_summaries_requests_begin_as_those_before_them_did(harness: EngineHarness) -> None:
    async def answer(request: ModelRequest) -> Completion:
        return say("word " * 1_000 if is_summary(request) else LONG)

    harness.model.capabilities = Capabilities(context_tokens=10_000)
    harness.model.script = [answer] * 40
    engine = harness.engine(memory=SHORT)
    async with running(engine):
        await talk(harness, engine, *numbered_questions(1, 16))
    went_on = 0
    for earlier, later in pairwise(harness.model.requests):
        if not is_summary(earlier) and not is_summary(later):
            assert later.messages[: earlier.stable_messages] == steady(earlier)
            went_on += 1
    assert went_on >= 8
    assert sum(map(is_summary, harness.model.requests)) >= 2
