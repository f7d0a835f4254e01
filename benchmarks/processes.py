"""Two processes of the product on one PostgreSQL database: turns a second beside one process, and the time from the
decision in one process to the call of the tool by another.

    python -m benchmarks.processes DATABASE MODEL TOOLS POLICY

That runs one process, for this module. For each number on a line of standard input it starts so many turns.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.load_accounts import Ledger
from benchmarks.turn_services import Services, program
from benchmarks.turn_ways import LIMIT, QUESTION, Product, product
from bot.domain.approvals import ApprovalPolicy, Decided, Decision, DecisionType
from bot.domain.turns import ToolStep, TurnView

LOOK_SECONDS = 0.005
"""Pause between two looks for a change that another process makes."""
LEDGER_SECONDS = 0.05
"""The same for the end of all turns, which takes longer to look for."""
SETTLE_SECONDS = 0.05
"""Pause until the process that asked for an approval waits again."""


class Worker:
    """A process of the product that runs turns, and starts them when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start_turns(self, turns: int) -> None:
        """Send it so many messages, each in a new conversation. Return when they are stored."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{turns}\n".encode())
        async with asyncio.timeout(LIMIT):
            assert await self._process.stdout.readline()


@asynccontextmanager
async def worker(services: Services, database: str, policy: ApprovalPolicy) -> AsyncIterator[Worker]:
    """Run a process of the product within the block."""
    arguments = (database, services.model, services.tools, policy)
    async with program("-m", "benchmarks.processes", *arguments) as (process, _ready):
        yield Worker(process)


async def rates(services: Services, database: str, rounds: int, turns: int) -> list[float]:
    """Return the turns a second of one process on an empty database, then of two. Each round starts all turns at once,
    and either process may run them; the rate is that of the median round.
    """
    found: list[float] = []
    workers: list[Worker] = []
    ledger = Ledger(database)
    async with AsyncExitStack() as stack:
        for number in (1, 2):
            workers.append(await stack.enter_async_context(worker(services, database, ApprovalPolicy.ALWAYS_ALLOW)))
            share = max(1, turns // number)
            seconds = [await _run_all(workers, share, ledger) for _ in range(rounds + 1)][1:]  # The first fills caches.
            found.append(share * number / median(seconds))
    return found


async def _run_all(workers: Sequence[Worker], share: int, ledger: Ledger) -> float:
    before, _ = await ledger.standing()
    began = time.perf_counter()
    await asyncio.gather(*(each.start_turns(share) for each in workers))
    async with asyncio.timeout(LIMIT):
        while await ledger.standing() != (before + share * len(workers), 0):  # noqa: ASYNC110 - a database has no event
            await asyncio.sleep(LEDGER_SECONDS)
    return time.perf_counter() - began


async def approval_latency(services: Services, database: str, times: int) -> float:
    """Return the median milliseconds from a decision in this process until the MCP server, which is `clock`, gets the
    call from another process, on an empty database.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(worker(services, database, ApprovalPolicy.ASK_USER))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        way = product(services, folder=folder, database=database, policy=ApprovalPolicy.ASK_USER, runs_turns=False)
        here = await stack.enter_async_context(way)
        return median([await _decide_one(here, str(n)) for n in range(times)]) * 1000


async def _decide_one(here: Product, conversation: str) -> float:
    receipt = await here.engine.receive(here.person.new_message(QUESTION, conversation))
    while not (waiting := (await _look(here, receipt.turn_id)).awaiting):
        pass
    await asyncio.sleep(SETTLE_SECONDS)
    approval = waiting[0].approval
    assert approval is not None
    decision = Decision(approval.id, approval.revision, DecisionType.APPROVE, here.person.author)
    decided = time.monotonic()
    result = await here.engine.approvals.decide(decision, here.person.member)
    assert isinstance(result, Decided), result
    while not (view := await _look(here, receipt.turn_id)).turn.status.ended:
        pass
    call = next(step for step in view.steps if isinstance(step, ToolStep))
    assert call.result is not None, call
    return float(call.result.text) - decided


async def _look(here: Product, turn_id: str) -> TurnView:
    await asyncio.sleep(LOOK_SECONDS)
    return await here.engine.view(turn_id)


async def _serve(database: str, services: Services, policy: ApprovalPolicy) -> None:
    numbers = (f"{os.getpid()}-{n}" for n in count())  # no conversation of another process
    with tempfile.TemporaryDirectory() as folder:
        async with product(services, folder=Path(folder), database=database, policy=policy) as here:
            print("ready", flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                messages = [here.person.new_message(QUESTION, next(numbers)) for _ in range(int(line))]
                await asyncio.gather(*map(here.engine.receive, messages))
                print("started", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], Services(*sys.argv[2:4]), ApprovalPolicy(sys.argv[4])))
