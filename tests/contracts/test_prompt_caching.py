"""Prompt caching: each request begins like the one before it, so that services find it in their caches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from bot.domain.approvals import ApprovalPolicy
from bot.domain.messages import ToolCall
from bot.domain.tools import ToolOutcome
from bot.domain.turns import ModelStep, ToolReplay, TurnView
from bot.engine.engine import Engine
from bot.engine.policy.rules import Policies, RuleBook
from bot.engine.prompt.history import HistoryBudget
from bot.engine.prompt.messages import SystemPrompt
from bot.engine.turn_runner import TurnSettings
from bot.llm.anthropic import request_body
from bot.llm.hosted_model import HostedModel
from bot.ports import CallContext, LanguageModel
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.llm import Call, FakeLanguageModel, Request, Say
from tests.fakes.llm_cache import PromptCache
from tests.fakes.parts import FakeToolbox, RecordingSurface, message, running, text_outcome, tool
from tests.llm.conversation import EACH_PROVIDER, MODEL, Provider
from tests.migrated import create_database

TURNS = 5
ALL_RUN = RuleBook(Policies(default=ApprovalPolicy.ALWAYS_ALLOW))


@dataclass
class Served:
    """A model registry that returns one model for every name."""

    model: LanguageModel

    async def get(self, _name: str) -> LanguageModel:
        return self.model


def as_at_home(model: LanguageModel, provider: Provider) -> LanguageModel:
    """Return the model as at its vendor's address. Anthropic's own cache marks are not sent to other addresses."""
    if provider.api == "anthropic":
        assert isinstance(model, HostedModel)
        model._wire_format = replace(model._wire_format, body=partial(request_body, MODEL, own_address=True))
    return model


async def looked_up(wanted: ToolCall, _context: CallContext) -> ToolOutcome:
    return text_outcome(wanted, f"{wanted.arguments}: " + "It is known. " * 40)


async def run_conversation(
    model: LanguageModel, folder: Path, replay: ToolReplay, *, overheard: tuple[str, ...] = ()
) -> list[TurnView]:
    """Run a conversation in which each question takes two rounds of tools. `overheard` are messages of others before
    each.
    """
    database = open_sqlite(await create_database(folder / "turns.db"))
    toolbox, surface = FakeToolbox(), RecordingSurface()
    toolbox.add(tool("kb__look_up", read_only=True, description="Looks a word up. " * 20), looked_up)
    engine = Engine(
        SqlTurnLog(database),
        Served(model),
        toolbox,
        [surface],
        rules=ALL_RUN,
        settings=TurnSettings(
            instructions=SystemPrompt("Be useful. " * 60, today=lambda _zone: date(2026, 11, 22)),
            memory=HistoryBudget(replay=replay),
        ),
    )
    views = []
    try:
        async with running(engine):
            for n in range(TURNS):
                asked = message(f"What is word {n}? " + "Tell me all of it. " * 10)
                receipt = await engine.receive(replace(asked, context=overheard))
                views.append(await surface.wait_for_end(receipt.turn_id))
    finally:
        await database.close()
    return views


def answering(cache: PromptCache, request: Request) -> Say:
    tokens = cache.count(request)
    n = len(cache.seen) % 3
    if n:
        return Say(calls=(Call("kb__look_up", {"word": f"w{len(cache.seen)}"}),), tokens=tokens)
    return Say("It means something. " * 20, tokens=tokens)


@EACH_PROVIDER
@pytest.mark.parametrize("replay", list(ToolReplay))
async def test_each_request_reuses_the_cached_prefix_of_the_one_before(
    provider: Provider, replay: ToolReplay, tmp_path: Path
) -> None:
    cache = PromptCache()
    with FakeLanguageModel(provider.api, rule=lambda request: answering(cache, request)) as service:
        model = as_at_home(provider.create(service.base_url), provider)
        try:
            views = await run_conversation(model, tmp_path, replay)
        finally:
            await model.close()
    assert len(cache.seen) == TURNS * 3
    for n, (earlier, later) in enumerate(pairwise(cache.seen), start=1):
        if n % 3:
            assert later.cached == earlier.input, "a round finds the whole request of the round before"
    firsts = cache.seen[::3]
    for earlier, later in pairwise(firsts):
        assert later.cached >= earlier.input, "a turn finds everything up to the question of the turn before"
    replies = [step for view in views for step in view.steps if isinstance(step, ModelStep)]
    assert [(step.usage.input_tokens, step.usage.cached_tokens) for step in replies] == [
        (each.input, each.cached) for each in cache.seen
    ]


@EACH_PROVIDER
async def test_a_one_time_message_does_not_hide_the_lasting_prefix(provider: Provider, tmp_path: Path) -> None:
    cache = PromptCache()
    with FakeLanguageModel(provider.api, rule=lambda request: answering(cache, request)) as service:
        model = as_at_home(provider.create(service.base_url), provider)
        try:
            await run_conversation(model, tmp_path, ToolReplay.NONE, overheard=("ben: I wonder.",))
        finally:
            await model.close()
    firsts = cache.seen[::3]
    found = [each.cached for each in firsts[2:]]
    assert found == sorted(set(found)), "each turn finds more than the one before"
    assert all(later.cached > earlier.cached for earlier, later in pairwise(firsts[1:]))
