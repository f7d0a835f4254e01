"""Cost of repeating earlier tool calls to a model: the three modes of `HISTORY_TOOL_STEPS`.

    .venv/bin/python -m benchmarks.history

Runs a conversation of twelve turns, each with two rounds of tools, every third with a large result, through the
providers' real clients against a local service with a prompt cache. Prints tokens as counted by the service, and
their cost if a cached token costs a tenth of another.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bot.domain.approvals import ApprovalPolicy
from bot.domain.messages import ToolCall
from bot.domain.tools import ToolOutcome
from bot.domain.turns import ToolReplay
from bot.engine.engine import Engine
from bot.engine.policy.rules import Policies, RuleBook
from bot.engine.prompt.history import HistoryBudget
from bot.engine.prompt.messages import SystemPrompt
from bot.engine.turn_runner import TurnSettings
from bot.llm import anthropic, openai_responses
from bot.llm.anthropic import request_body
from bot.llm.hosted_model import HostedModel
from bot.ports import CallContext, LanguageModel
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.llm import Api, Call, FakeLanguageModel, Request, Say
from tests.fakes.llm_cache import PromptCache
from tests.fakes.parts import FakeToolbox, RecordingSurface, message, running, text_outcome, tool
from tests.migrated import create_database

QUESTIONS = 12
CACHED_PRICE = 0.1
SMALL, LARGE = 1_200, 20_000
"""Size of a tool result in characters."""
APIS: tuple[Api, ...] = ("responses", "anthropic")


@dataclass(frozen=True, slots=True)
class Served:
    """One model under every name."""

    model: LanguageModel

    async def get(self, _name: str) -> LanguageModel:
        """Return the model."""
        return self.model


def _model(api: Api, address: str) -> LanguageModel:
    if api == "responses":
        return openai_responses.create(openai_responses.Config("m", "key", base_url=address))
    model = anthropic.create(anthropic.Config("m", "key", base_url=address))
    assert isinstance(model, HostedModel)
    # Cache marks are sent to the vendor's own address only.
    model._wire_format = replace(model._wire_format, body=partial(request_body, "m", own_address=True))  # noqa: SLF001
    return model


async def measured(api: Api, replay: ToolReplay, questions: int = QUESTIONS) -> PromptCache:
    """Run the conversation. Return the service's token counts."""
    cache, rounds, results = PromptCache(), itertools.count(), itertools.count()

    def answer(request: Request) -> Say:
        tokens = cache.count(request)
        if next(rounds) % 3 == 2:
            return Say("That is how it is. " * 40, tokens=tokens)
        return Say(calls=(Call("kb__look_up", {"word": f"w{len(cache.seen)}"}),), tokens=tokens)

    async def looked_up(wanted: ToolCall, _context: CallContext) -> ToolOutcome:
        length = LARGE if next(results) % 6 == 0 else SMALL
        return text_outcome(wanted, ("A line of what is known. " * length)[:length])

    with tempfile.TemporaryDirectory() as folder, FakeLanguageModel(api, rule=answer) as service:
        database = open_sqlite(await create_database(Path(folder) / "turns.db"))
        model, toolbox, surface = _model(api, service.base_url), FakeToolbox(), RecordingSurface()
        for n in range(20):
            toolbox.add(tool(f"kb__look_up_{n}", read_only=True, description="Looks something up. " * 20))
        toolbox.add(tool("kb__look_up", read_only=True, description="Looks a word up. " * 20), looked_up)
        engine = Engine(
            SqlTurnLog(database),
            Served(model),
            toolbox,
            [surface],
            rules=RuleBook(Policies(default=ApprovalPolicy.ALWAYS_ALLOW)),
            settings=TurnSettings(
                instructions=SystemPrompt("Be useful. " * 100), memory=HistoryBudget(tokens=100_000, replay=replay)
            ),
        )
        async with running(engine):
            for n in range(questions):
                receipt = await engine.receive(message(f"What is word {n}? " + "Tell me all of it. " * 5))
                await surface.wait_for_end(receipt.turn_id)
        await model.close()
        await database.close()
    return cache


async def main(questions: int = QUESTIONS) -> None:
    """Print the table."""
    print(f"{'':24}{'input':>10}{'cached':>10}{'uncached':>10}{'weighted':>10}{'largest':>10}")
    for api in APIS:
        for replay in ToolReplay:
            seen = (await measured(api, replay, questions)).seen
            whole, cached = sum(each.input for each in seen), sum(each.cached for each in seen)
            weighted = round(whole - cached + CACHED_PRICE * cached)
            numbers = (whole, cached, whole - cached, weighted, max(each.input for each in seen))
            print(f"{api + ' ' + replay.value:24}" + "".join(f"{number:>10,}" for number in numbers))


if __name__ == "__main__":
    asyncio.run(main())
