"""Two hundred calls wait for an approval. Two processes decide at random, two others run approved calls, and all of
them are killed in between. The audit in the end equals the effects.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import sqlalchemy as sa

from bot.domain.audit import AuditEntry, AuditQuery
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.storage.audit_verification import SqlAuditTrail
from bot.storage.database import Database
from tests.chaos.clicker import AWAITING
from tests.chaos.worker import engine_on
from tests.fakes.programs import Program
from tests.postgres import Server

PROJECT = Path(__file__).parents[2]
CONVERSATIONS, CALLS = 50, 4
KILLS = 8
LIMIT = 90.0
_LIVE = sa.text("select id from turns where status in ('queued', 'running', 'waiting')")


class Processes:
    """Processes that are started again whenever they have died, two of each kind."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._seeds = iter(range(1_000))
        self.running: dict[str, Program] = {}

    def start(self, name: str) -> None:
        kind = name.split(maxsplit=1)[0]
        more = (str(next(self._seeds)),) if kind == "clicker" else ()
        with (self._folder / "said").open("ab") as said, Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), said.fileno(), said.fileno())
            arguments = (f"tests.chaos.{kind}", self._url, str(self._folder), *more)
            self.running[name] = Program(arguments, PROJECT, dict(os.environ), streams)

    async def kill(self, name: str) -> None:
        """Kill the process with SIGKILL in the middle of its work."""
        process = self.running.pop(name)
        process.kill()
        await process.wait()

    async def kill_all(self) -> None:
        for name in sorted(self.running):
            await self.kill(name)


async def _until(found: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await found():
            await asyncio.sleep(0.05)


async def _ids(database: Database, question: sa.TextClause) -> list[str]:
    return await database.run(lambda connection: list(connection.execute(question).scalars()))


async def test_after_a_storm_of_decisions_and_deaths_the_audit_says_exactly_what_has_happened(
    postgres: Server, tmp_path: Path
) -> None:
    url = await asyncio.to_thread(postgres.fresh)
    chance = random.Random(7)
    async with AsyncExitStack() as stack:
        database, engine = engine_on(url, tmp_path)
        stack.push_async_callback(database.close)
        processes = Processes(url, tmp_path)
        stack.push_async_callback(processes.kill_all)
        for name in ("worker 1", "worker 2"):
            processes.start(name)
        for n in range(CONVERSATIONS):
            where = ConversationKey("chaos", "w", "c", str(n))
            asked = f"use {' '.join(['ask'] * CALLS)}"
            await engine.receive(InboundMessage((f"m{n}",), where, Author("chaos", "sam", "Sam"), asked))

        async def all_wait() -> bool:
            return len(await _ids(database, AWAITING)) == CONVERSATIONS * CALLS

        await _until(all_wait)
        for name in ("clicker 1", "clicker 2"):
            processes.start(name)

        async def some_decided(fewer: int) -> bool:
            return len(await _ids(database, AWAITING)) <= fewer

        for kill in range(1, KILLS + 1):
            left = CONVERSATIONS * CALLS * (KILLS - kill) // KILLS
            await _until(lambda left=left: some_decided(left))  # type: ignore[misc]
            victim = chance.choice(sorted(processes.running))
            await processes.kill(victim)
            processes.start(victim)

        async def all_ended() -> bool:
            return not await _ids(database, _LIVE)

        await _until(all_ended)
        await processes.kill_all()

        trail = SqlAuditTrail(database)
        assert (await trail.verify()).findings == ()
        rows = [row async for row in trail.entries(AuditQuery())]

    happened = Counter(line.split()[1] for line in (tmp_path / "effects").read_text().splitlines())
    assert set(happened.values()) == {1}, "something was done twice"

    decided = _verdicts_by_approval(rows)
    assert len(decided) == CONVERSATIONS * CALLS
    told = dict(line.split() for line in (tmp_path / "decisions").read_text().splitlines())
    assert told.items() <= decided.items()

    calls = {row.facts["approval"]: f"{row.turn_id}:{row.facts['step']}" for row in rows if row.kind == "asked"}
    signed = {calls[card] for card, verdict in decided.items() if verdict == "approve"}
    ran = {f"{row.turn_id}:{row.facts['step']}": row.facts["status"] for row in rows if row.kind == "ran"}
    certain = {call for call, status in ran.items() if status == "done"}
    unsure = {call for call, status in ran.items() if status == "unknown"}
    assert ran.keys() == signed, "what ran is not what was signed"
    assert certain | unsure == signed
    assert certain <= happened.keys() <= certain | unsure
    assert certain, "nothing has happened"


def _verdicts_by_approval(rows: list[AuditEntry]) -> dict[str, str]:
    """The verdict on every approval, which must be one."""
    verdicts: dict[str, str] = {}
    for row in rows:
        if row.kind == "decided":
            assert row.facts["approval"] not in verdicts, "one approval was decided twice"
            verdicts[str(row.facts["approval"])] = str(row.facts["verdict"])
    return verdicts
