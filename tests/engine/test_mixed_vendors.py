"""One turn with rounds answered by models of several vendors. Each is the fallback of those before it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import cast

from bot.domain.metrics import null_sink
from bot.domain.turns import ModelStep, ToolReplay
from bot.engine.prompt.history import HistoryBudget
from bot.llm.models import REST_SECONDS, FallbackModel, InstrumentedModel
from bot.ports import LanguageModel
from tests.engine.conftest import EngineHarness
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Say, Status
from tests.fakes.parts import ScriptedModel, message, running, tool
from tests.llm.conversation import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES

PROVIDERS = (ANTHROPIC, OPENAI_RESPONSES, OPENAI_CHAT)
BUSY = Status(429, "Slowly, please.")
SEARCH, CALL = "countersign__search_tools", "countersign__call_tool"


class Vendors:
    """A fallback chain of all vendors' models, the first preferred. The test advances `now`."""

    def __init__(self, harness: EngineHarness, services: list[FakeLanguageModel]) -> None:
        self.now = 1_000.0
        models: dict[str, LanguageModel] = {
            each.api: InstrumentedModel(each.create(service.base_url), each.api, null_sink)
            for each, service in zip(PROVIDERS, services, strict=True)
        }
        self.chain = FallbackModel(models, clock=lambda: self.now)
        harness.model = cast("ScriptedModel", self)

    async def get(self, _name: str) -> FallbackModel:
        return self.chain


def thinking_reply(of: str, *calls: Call) -> Say:
    return Say(f"{of} says", calls, thinking=f"{of} thinks")


async def test_each_vendor_gets_replies_of_others_without_their_reasoning(
    harness: EngineHarness,
) -> None:
    for n in range(40):
        harness.toolbox.add(tool(f"notes__add_{n}"))
    harness.allow("notes__add_1", "notes__add_2")
    replies: tuple[list[Reply], ...] = (
        [thinking_reply("one", Call(SEARCH, {"query": "add"})), BUSY, thinking_reply("one")],
        [thinking_reply("two", Call(CALL, {"name": "notes__add_1", "arguments": {}})), BUSY],
        [thinking_reply("three", Call("notes__add_2")), thinking_reply("three")],
    )
    with ExitStack() as stack:
        services = [
            stack.enter_context(FakeLanguageModel(each.api, *said))
            for each, said in zip(PROVIDERS, replies, strict=True)
        ]
        vendors = Vendors(harness, services)
        engine = harness.engine(memory=HistoryBudget(replay=ToolReplay.FULL))
        async with running(engine):
            first = await harness.surface.wait_for_end((await engine.receive(message("add two"))).turn_id)
            vendors.now += 2 * REST_SECONDS
            second = await harness.surface.wait_for_end((await engine.receive(message("and now?"))).turn_id)
        await vendors.chain.close()
    wrote = [step.model for view in (first, second) for step in view.steps if isinstance(step, ModelStep)]
    assert wrote == ["anthropic", "responses", "openai", "openai", "anthropic"]
    assert harness.toolbox.names == ["notes__add_1", "notes__add_2"]
    assert [service.refusals for service in services] == [[], [], []]
    for of, service in zip(("one", "two", "three"), services, strict=True):
        said = json.dumps([request.body for request in service.requests])
        assert not any(f"{other} thinks" in said for other in ("one", "two", "three") if other != of)
