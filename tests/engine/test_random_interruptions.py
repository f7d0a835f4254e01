"""Messages received during cancelled requests, stopped turns, repeated messages and restarts of the process."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import cast

import pytest

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest
from bot.domain.conversations import ConversationKey, InboundMessage
from bot.domain.turns import ModelStep, Receipt, TurnStatus
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, BEN, ScriptedModel, message, running, say, words

MESSAGES, CONVERSATIONS, EVENTS = 24, 5, 60


def nth_message(n: int) -> InboundMessage:
    """Return the `n`th message, always the same."""
    where = ConversationKey("test", "w", "many", str(n % CONVERSATIONS))
    return message(f"message {n}.", f"key-{n}", conversation=where, author=(ANA, BEN)[n % 2])


@dataclass
class Answering:
    """A slow model that records questions asked twice at the same time."""

    chance: random.Random
    under_way: Counter[str] = field(default_factory=Counter)
    twice: set[str] = field(default_factory=set)
    capabilities: Capabilities = field(default_factory=Capabilities)

    async def get(self, _name: str) -> Answering:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        question = words(request)[-1]
        self.under_way[question] += 1
        if self.under_way[question] > 1:
            self.twice.add(question)
        try:
            for _ in range(self.chance.randrange(40)):
                await asyncio.sleep(0)
            answer: Completion = say("Done.")
            yield answer
        finally:
            self.under_way[question] -= 1

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(6))
async def test_each_message_is_one_turn_that_is_driven_once_at_a_time_and_ends(
    harness: EngineHarness, seed: int
) -> None:
    chance = random.Random(seed)
    model = Answering(chance)
    harness.model = cast("ScriptedModel", model)
    most_turns = chance.choice((1, 3, 32))
    engine = harness.engine(most_turns=most_turns)
    known: list[str] = []
    tasks: list[asyncio.Task[Receipt]] = []
    for _ in range(4):  # the process leaves and comes back
        async with running(engine):
            for _ in range(EVENTS // 4):
                task = asyncio.create_task(engine.receive(nth_message(chance.randrange(MESSAGES))))
                tasks.append(task)
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
                if chance.random() < 0.3:
                    task.cancel()
                elif chance.random() < 0.2 and known:
                    await engine.stop(chance.choice(known), ANA)
                known += [each.result().turn_id for each in tasks if each.done() and not each.cancelled()]
    async with running(engine):
        receipts = [await engine.receive(nth_message(n)) for n in range(MESSAGES)]
        views = [await harness.surface.wait_for_end(receipt.turn_id) for receipt in receipts]
    assert len({receipt.turn_id for receipt in receipts}) == MESSAGES
    everything = [
        view.turn.id
        for n in range(CONVERSATIONS)
        for view in await harness.log.recent_turns(ConversationKey("test", "w", "many", str(n)), 100)
    ]
    assert len(everything) == MESSAGES
    assert model.twice == set()
    for view in views:
        replies = [step for step in view.steps if isinstance(step, ModelStep)]
        # A stopped turn keeps its completion, even one that ended at the same moment.
        assert view.turn.status is TurnStatus.CANCELLED or len(replies) == 1
        assert view.turn.status in (TurnStatus.DONE, TurnStatus.CANCELLED)
        assert len(replies) < 2
    await asyncio.wait(tasks, timeout=60)
    assert all(task.cancelled() or task.exception() is None for task in tasks)
    assert tuple(engine.worker.turns) == ()
    assert engine.worker.free_slots == most_turns
