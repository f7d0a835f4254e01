"""What durability costs: a three-step turn (the model asks, an unsafe tool runs, the model answers) with a model and a
tool that do nothing, driven by the real engine on each database, beside a bare loop that stores nothing.

    python -m benchmarks.turns [--turns N] [--postgresql URL]

Prints milliseconds and CPU a turn and turns a second, and their ratios to the loop of the same run. Nothing is
asserted: numbers are for people who know the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import resource
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bot.domain.approvals import ApprovalPolicy
from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, StopReason
from bot.domain.conversations import Attachment, Author, ConversationKey, InboundMessage, Member
from bot.domain.messages import Role, TextPart, ToolCall, ToolResult, assistant, tool_results, user
from bot.domain.tools import Misfit, Returned, Tool, ToolOutcome, ToolSet
from bot.domain.views import Audience, Drawn, Notice, Refs, TurnView
from bot.engine.engine import Engine
from bot.engine.policy import Policies
from bot.engine.rules import RuleBook
from bot.ports import CallContext
from bot.storage import schema
from bot.storage.database import Database
from bot.storage.doorbell import listen
from bot.storage.opening import open_database
from bot.storage.postgresql import PostgresDatabase
from bot.storage.turn_log import SqlTurnLog
from tests.postgres import running_server

ASKER = Author("bench", "ana", "Ana")
TOOL = Tool("s__write", "s", "write")


class InstantModel:
    """Asks for one call, then answers."""

    capabilities = Capabilities()

    async def named(self, name: str) -> InstantModel:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if request.messages[-1].role is Role.TOOL:
            yield Completion(assistant("Done."), StopReason.ANSWERED)
        else:
            yield Completion(assistant("", ToolCall("c1", TOOL.name, {"text": "milk"})), StopReason.TOOLS)

    async def close(self) -> None:
        pass


class InstantToolbox:
    """One tool that changes something and returns at once."""

    async def offer(self, workspace: str = "") -> ToolSet:
        return ToolSet((TOOL,))

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        return Returned(ToolResult(call.id, (TextPart("ok"),)))

    def misfits(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[Misfit]:
        return ()


class Finish:
    """A surface that draws to nowhere and says when a turn has ended."""

    reach = "bench:"
    pace = 0.0

    def __init__(self) -> None:
        self._ended: dict[str, asyncio.Event] = {}

    def end_of(self, turn_id: str) -> asyncio.Event:
        return self._ended.setdefault(turn_id, asyncio.Event())

    async def show(self, view: TurnView, refs: Refs) -> AsyncGenerator[Drawn, None]:
        yield Drawn("reply", "1")
        if view.turn.status.ended:
            self.end_of(view.turn.id).set()

    async def tell(self, audience: Audience, notice: Notice) -> None:
        pass

    async def member(self, author: Author, where: ConversationKey) -> Member:
        return Member(author)

    async def fetch(self, attachment: Attachment) -> bytes:
        return b""


@dataclass(frozen=True)
class Measured:
    """One run: seconds of wall time and CPU for `turns` turns, and the median time of a turn."""

    turns: int
    wall: float
    cpu: float
    each: float


async def bare_loop(conversations: int, turns: int) -> Measured:
    """The same turn without anything being stored or drawn."""
    model, toolbox = InstantModel(), InstantToolbox()

    async def turn() -> None:
        messages = [user("save it")]
        while True:
            completion = [event async for event in model.stream(ModelRequest(tuple(messages)))][-1]
            assert isinstance(completion, Completion)
            messages.append(completion.message)
            if not completion.message.tool_calls:
                return
            for call in completion.message.tool_calls:
                outcome = await toolbox.call(TOOL, call, CallContext(ASKER, "k"))
                assert isinstance(outcome, Returned)
                messages.append(tool_results(outcome.result))

    return await _measured(conversations, turns, lambda _conversation, _n: turn())


async def durable(database: Database, conversations: int, turns: int) -> Measured:
    """The real engine on a database."""
    if isinstance(database, PostgresDatabase):
        log = SqlTurnLog(database, functools.partial(listen, database.address))
    else:
        log = SqlTurnLog(database)
    finish = Finish()
    engine = Engine(
        log,
        InstantModel(),
        InstantToolbox(),
        [finish],
        rules=RuleBook(Policies(default=ApprovalPolicy.ALWAYS_ALLOW)),
    )
    running = asyncio.create_task(engine.run())
    mark = time.time_ns()

    async def turn(conversation: int, n: int) -> None:
        where = ConversationKey("bench", str(mark), "c", str(conversation))
        receipt = await engine.receive(InboundMessage((f"{mark}:{conversation}:{n}",), where, ASKER, "save it"))
        async with asyncio.timeout(120):
            await finish.end_of(receipt.turn_id).wait()

    try:
        return await _measured(conversations, turns, turn)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _measured(conversations: int, turns: int, turn) -> Measured:  # type: ignore[no-untyped-def]  # noqa: ANN001
    each: list[float] = []

    async def talk(conversation: int) -> None:
        for n in range(max(1, turns // conversations)):
            began = time.perf_counter()
            await turn(conversation, n)
            each.append(time.perf_counter() - began)

    began, cpu = time.perf_counter(), _cpu()
    await asyncio.gather(*(talk(conversation) for conversation in range(conversations)))
    return Measured(len(each), time.perf_counter() - began, _cpu() - cpu, median(each))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@asynccontextmanager
async def _databases(postgresql: str) -> AsyncIterator[dict[str, Database]]:
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "sqlite": open_database(f"sqlite:///{Path(folder) / 'bench.db'}"),
            "postgresql": open_database(postgresql),
        }
        for database in found.values():
            await schema.upgrade(database)
        yield found
        for database in found.values():
            await database.close()


async def measure(turns: int, postgresql: str) -> None:
    """Run everything and print the table."""
    table = Table("", "conversations", "ms a turn", "CPU ms a turn", "CPU added, ms", "turns/s", "share of the loop's")
    async with _databases(postgresql) as databases:
        for conversations in (1, 16, 64, 256):
            await bare_loop(conversations, turns)
            bare = await bare_loop(conversations, 20 * turns)
            _row(table, "bare loop", conversations, bare, bare)
            for name, database in databases.items():
                await durable(database, conversations, min(turns, 2 * conversations))
                count = turns if conversations > 1 else max(50, turns // 8)
                _row(table, name, conversations, await durable(database, conversations, count), bare)
    Console(width=120).print(table)


def _row(table: Table, name: str, conversations: int, run: Measured, bare: Measured) -> None:
    cpu, bare_cpu = run.cpu / run.turns * 1000, bare.cpu / bare.turns * 1000
    rate, bare_rate = run.turns / run.wall, bare.turns / bare.wall
    table.add_row(
        name,
        str(conversations),
        f"{run.each * 1000:.2f}",
        f"{cpu:.2f}",
        f"{cpu - bare_cpu:.2f}",
        f"{rate:.0f}",
        f"{rate / bare_rate:.4f}",
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1024, help="turns at each number of conversations")
    parser.add_argument("--postgresql", help="an empty PostgreSQL database (default: a server of its own)")
    options = parser.parse_args()
    if options.postgresql:
        asyncio.run(measure(options.turns, options.postgresql))
    else:
        with running_server() as server:
            asyncio.run(measure(options.turns, server.empty()))


if __name__ == "__main__":
    main()
