"""Several processes on one PostgreSQL. Each engine has its own connection, wakeup listener and surface."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from bot.domain.approvals import Decided, Decision, DecisionType
from bot.domain.completions import Completion
from bot.domain.conversations import ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.tools import ToolOutcome
from bot.domain.turns import StepStatus, ToolStep, TurnStatus, TurnView
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import RuleBook
from bot.ports import CallContext
from bot.storage.address import PostgresServer
from bot.storage.postgresql import PostgresDatabase, listen
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import (
    ANA,
    NEWEST,
    FakeToolbox,
    RecordingSurface,
    ScriptedModel,
    ask_for,
    call,
    member,
    message,
    running,
    say,
    text_outcome,
    tool,
    until,
)
from tests.postgres import Server


@dataclass
class Process:
    """An engine with its own turn log and surface. The model and the toolbox are shared: see `World`."""

    log: SqlTurnLog
    engine: Engine
    surface: RecordingSurface


@dataclass
class World:
    """State that all processes share."""

    address: PostgresServer
    model: ScriptedModel = field(default_factory=ScriptedModel)
    toolbox: FakeToolbox = field(default_factory=FakeToolbox)

    @asynccontextmanager
    async def process(self, *, doorbell: bool = True) -> AsyncIterator[Process]:
        """Open a process. Its engine is not yet running."""
        database = PostgresDatabase(self.address)
        heard = functools.partial(listen, self.address)
        log = SqlTurnLog(database, heard) if doorbell else SqlTurnLog(database)
        surface = RecordingSurface()
        engine = Engine(
            log,
            self.model,
            self.toolbox,
            [surface],
            rules=RuleBook(approvers=Approvers(admins=frozenset({"test:ana"}))),
        )
        yield Process(log, engine, surface)
        await database.close()


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> World:
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    return World(PostgresServer(await asyncio.to_thread(server.fresh)))


def waiting_call(view: TurnView) -> ToolStep | None:
    waiting = (step for step in view.steps if isinstance(step, ToolStep) and step.status is StepStatus.AWAITING)
    return next(waiting, None)


async def test_a_message_taken_in_by_one_process_is_answered_by_another(world: World) -> None:
    world.model.script = [say("Hello.")]
    async with world.process() as front, world.process() as worker, running(worker.engine):
        receipt = await front.engine.receive(message("hi"))
        view = await worker.surface.wait_for_end(receipt.turn_id)
    assert view.turn.status is TurnStatus.DONE


@pytest.mark.parametrize("doorbell", [True, False], ids=["with the doorbell", "behind a pooler that swallows it"])
async def test_a_click_in_one_process_starts_the_call_in_another_while_its_sibling_runs(
    world: World, doorbell: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not doorbell:
        for interval in ("worker.HEARTBEAT_SECONDS", "worker.POLL_SECONDS", "view_delivery.POLL_SECONDS"):
            monkeypatch.setattr(f"bot.engine.{interval}", 0.1)
    release = asyncio.Event()

    async def slow(call: ToolCall, _context: CallContext) -> ToolOutcome:
        await release.wait()
        return text_outcome(call, "slow")

    world.toolbox.add(tool("s__slow", read_only=True), slow)
    world.toolbox.add(tool("s__write"))
    world.model.script = [ask_for(call("s__slow", "a"), call("s__write", "b")), say("Done.")]
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(world.process(doorbell=doorbell))
        elsewhere = await stack.enter_async_context(world.process(doorbell=doorbell))
        await stack.enter_async_context(running(worker.engine))
        receipt = await elsewhere.engine.receive(message("go"))
        view = await worker.surface.wait_for(lambda view: waiting_call(view) is not None)
        for step in view.steps:
            if isinstance(step, ToolStep) and step.approval is not None:
                click = Decision(step.approval.id, 1, DecisionType.APPROVE, ANA)
                assert await elsewhere.engine.approvals.decide(click, member(ANA)) == Decided(DecisionType.APPROVE)
                name = step.call.name
                await until(lambda name=name: name in world.toolbox.names)  # type: ignore[misc]
        release.set()
        await worker.surface.wait_for_end(receipt.turn_id)
    assert sorted(world.toolbox.names) == ["s__slow", "s__write"]


async def test_a_turn_is_stopped_from_another_process(world: World) -> None:
    async def for_ever(_request: object) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError

    world.model.script = [for_ever]
    async with world.process() as worker, world.process() as elsewhere, running(worker.engine):
        receipt = await elsewhere.engine.receive(message("go"))
        await until(lambda: bool(world.model.requests))
        assert await elsewhere.engine.stop(receipt.turn_id, ANA)
        view = await worker.surface.wait_for_end(receipt.turn_id)
    assert view.turn.failure == "Stopped by Ana."


async def test_a_process_that_leaves_hands_its_turns_over_at_once(world: World) -> None:
    started = asyncio.Event()

    async def for_ever(_call: ToolCall, _context: CallContext) -> ToolOutcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    world.toolbox.add(tool("s__read", read_only=True), for_ever)
    world.model.script = [ask_for(call("s__read")), say("There.")]
    async with world.process() as first, world.process() as second:
        async with running(first.engine):
            receipt = await second.engine.receive(message("go"))
            view = await first.surface.wait_for(lambda view: waiting_call(view) is not None)
            step = waiting_call(view)
            assert step is not None
            assert step.approval is not None
            await second.engine.approvals.decide(Decision(step.approval.id, 1, DecisionType.APPROVE, ANA), member(ANA))
            await asyncio.wait_for(started.wait(), 10)
        world.toolbox.add(tool("s__read", read_only=True))
        async with running(second.engine):
            view = await second.surface.wait_for_end(receipt.turn_id)
        # The second process continued in the first process's message.
        assert await second.log.acquire_delivery(receipt.turn_id, NEWEST) == {"reply": f"ref-{receipt.turn_id}"}
    assert view.turn.status is TurnStatus.DONE
    assert world.toolbox.names == ["s__read", "s__read"]


async def test_three_processes_answer_many_conversations_each_question_once_and_in_order(world: World) -> None:
    answered: list[str] = []

    async def answer(request: object) -> Completion:
        text = request.messages[-1].text  # type: ignore[attr-defined]
        answered.append(text)
        await asyncio.sleep(0)
        return say(f"re {text}")

    world.model.script = [answer] * 60
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(world.process()) for _ in range(3)]
        for process in processes:
            await stack.enter_async_context(running(process.engine))
        receipts = []
        for n in range(5):
            for c in range(12):
                said = message(f"{c}:{n}", conversation=ConversationKey("test", "w", "hall", str(c)))
                receipts.append(await processes[(n + c) % 3].engine.receive(said))

        def all_drawn() -> bool:
            ended = {view.turn.id for process in processes for view in process.surface.views if view.turn.status.ended}
            return ended == {receipt.turn_id for receipt in receipts}

        await until(all_drawn, 60)
    assert sorted(answered) == sorted(f"{c}:{n}" for c in range(12) for n in range(5))
    for c in range(12):
        assert [text for text in answered if text.startswith(f"{c}:")] == [f"{c}:{n}" for n in range(5)]
