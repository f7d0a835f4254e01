"""Three worker processes on one database and everything that can befall them: kill -9, a freeze longer than the lease,
racing clicks, stops at any moment, PostgreSQL restarted. Then the accounts are made.

    python -m tests.chaos.run [--sqlite] [--seconds N] [--seed N]

Prints the counts; exit code 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from bot.domain.approvals import Decided, Decision, DecisionType
from bot.domain.conversations import Author, ConversationKey, InboundMessage, Member
from bot.domain.elicitations import ElicitationAction, ElicitationResult
from bot.engine.engine import Engine
from bot.errors import DatabaseUnavailable
from bot.ports.platform import ElicitationAnswered
from bot.storage.database import Database
from tests.audit_check import audit_findings
from tests.chaos.worker import APPROVER, engine_on
from tests.migrated import copy_template
from tests.postgres import Server, running_server

PROJECT = Path(__file__).parents[2]
CONVERSATIONS = 60
WORKERS = 3
SETTLING_SECONDS = 120.0
TOOLS = ("read", "write", "ask", "book", "chat")

_awaiting = sa.text(
    "select a.id from approvals a join steps s on s.turn_id = a.turn_id and s.n = a.n where s.status = 'awaiting'"
)
_asked = sa.text(
    "select e.id || ' ' || t.author_id from elicitations e join turns t on t.id = e.turn_id where e.status = 'open'"
)
_live = sa.text("select id from turns where status in ('queued', 'running', 'waiting')")
_unfinished = sa.text(
    "select count(*) from turns t join deliveries d on d.turn_id = t.id"
    " where t.status in ('queued', 'running', 'waiting') or d.delivered_revision < d.revision"
)
_turns = sa.text("select id, conversation, seq, status, ended_at from turns order by conversation, seq")
_steps = sa.text("select turn_id, n, kind, status, created_at from steps")


@dataclass
class Happened:
    """Counts of the faults that were caused."""

    counts: Counter[str] = field(default_factory=Counter)
    won: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)


class Chaos:
    """The source of chaos. `random` decides its acts; the order of the processes is left to the machine."""

    def __init__(self, server: Server | None, url: str, folder: Path, seconds: float, seed: int) -> None:
        self._server = server
        self._url = url
        self._folder = folder
        self._seconds = seconds
        self._random = random.Random(seed)
        self._workers: dict[int, asyncio.subprocess.Process] = {}
        self._frozen: set[int] = set()
        self.happened = Happened()
        self.database: Database
        self._engine: Engine

    async def run(self) -> None:
        """Everything at once for the given time, then peace until every turn has ended and is drawn."""
        self.database, self._engine = engine_on(self._url, self._folder)
        for n in range(WORKERS):
            await self._start(n)
        mischief = [
            asyncio.create_task(each)
            for each in (self._talk(), self._click(), self._stop(), self._kill(), self._freeze(), self._restart())
        ]
        await asyncio.sleep(self._seconds)
        for task in mischief:
            task.cancel()
        for result in await asyncio.gather(*mischief, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        for n in self._frozen:
            self._workers[n].send_signal(signal.SIGCONT)
        clicking = asyncio.create_task(self._click())
        await self._settle()
        clicking.cancel()
        await asyncio.gather(clicking, return_exceptions=True)
        for worker in self._workers.values():
            worker.terminate()
        await asyncio.gather(*(worker.wait() for worker in self._workers.values()))

    async def _start(self, n: int) -> None:
        self._workers[n] = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chaos.worker", self._url, str(self._folder), cwd=PROJECT
        )

    async def _settle(self) -> None:
        deadline = time.monotonic() + SETTLING_SECONDS
        while await self._ask(_unfinished) != [0] and time.monotonic() < deadline:
            for n, worker in self._workers.items():
                if worker.returncode is not None:
                    await self._start(n)
            await asyncio.sleep(0.25)

    async def _ask(self, question: sa.TextClause) -> list[Any]:
        return await self.database.run(
            lambda connection: list(connection.execute(question).scalars()), retry_seconds=60
        )

    # ------------------------------------------------------------------ mischief

    async def _talk(self) -> None:
        said = 0
        while True:
            said += 1
            wanted = self._random.choices(TOOLS, k=self._random.randint(1, 3))
            where = ConversationKey("chaos", "w", "c", str(self._random.randrange(CONVERSATIONS)))
            author = Author("chaos", f"person-{said % 7}", "Somebody")
            message = InboundMessage((f"m{said}",), where, author, f"use {' '.join(wanted)}")
            try:
                await self._engine.receive(message)
                self.happened.counts["messages taken in"] += 1
                if self._random.random() < 0.1:
                    again = await self._engine.receive(message)
                    assert again.redelivery
                    self.happened.counts["redelivered"] += 1
            except DatabaseUnavailable:
                self.happened.counts["messages refused while the database was away"] += 1
            await asyncio.sleep(self._random.uniform(0, 0.1))

    async def _click(self) -> None:
        while True:
            for card in await self._ask(_awaiting):
                await asyncio.gather(*(self._click_once(card) for _ in range(3)))
            for asked in await self._ask(_asked):
                await asyncio.gather(*(self._answer_once(*asked.split()) for _ in range(3)))
            await asyncio.sleep(0.2)

    async def _click_once(self, card: str) -> None:
        verdict = DecisionType.APPROVE if self._random.random() < 0.8 else DecisionType.DENY
        try:
            settlement = await self._engine.approvals.decide(Decision(card, 1, verdict, APPROVER), Member(APPROVER))
        except DatabaseUnavailable:
            return
        self.happened.counts["clicks"] += 1
        self.happened.won[card] += isinstance(settlement, Decided)

    async def _answer_once(self, question: str, person: str) -> None:
        action = self._random.choice((ElicitationAction.ACCEPT, ElicitationAction.DECLINE))
        reply = ElicitationResult(action, {"n": self._random.random()} if action is ElicitationAction.ACCEPT else None)
        try:
            author = Author("chaos", person, f"Somebody {self._random.random()}")
            answer = await self._engine.elicitations.answer(question, reply, Member(author))
        except DatabaseUnavailable:
            return
        self.happened.counts["answers"] += 1
        self.happened.answered[question] += isinstance(answer, ElicitationAnswered)

    async def _stop(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.2, 1.0))
            live = await self._ask(_live)
            if live and await self._engine.stop(self._random.choice(live), APPROVER):
                self.happened.counts["stops"] += 1

    async def _kill(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            n = self._random.choice([worker for worker in self._workers if worker not in self._frozen])
            self._workers[n].kill()
            await self._workers[n].wait()
            self.happened.counts["kill -9"] += 1
            await self._start(n)

    async def _freeze(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            n = self._random.choice(list(self._workers))
            self._frozen.add(n)
            os.kill(self._workers[n].pid, signal.SIGSTOP)
            await asyncio.sleep(17.0)
            os.kill(self._workers[n].pid, signal.SIGCONT)
            self._frozen.discard(n)
            self.happened.counts["frozen past the lease"] += 1

    async def _restart(self) -> None:
        if self._server is None:
            return
        await asyncio.sleep(self._seconds / 2)
        await asyncio.to_thread(self._server.restart)
        self.happened.counts["PostgreSQL restarted"] += 1


async def _accounts(chaos: Chaos, folder: Path) -> tuple[dict[str, int], list[str]]:
    """The counts, and every promise that was broken."""
    turns = await chaos.database.run(lambda connection: connection.execute(_turns).all())
    steps = await chaos.database.run(lambda connection: connection.execute(_steps).all())
    misfits = await audit_findings(chaos.database)
    undrawn = await chaos.database.run(lambda connection: connection.execute(_unfinished).scalar_one())
    effects = Counter(line for line in (folder / "effects").read_text().splitlines())
    last_drawn = dict(line.split() for line in (folder / "drawings").read_text().splitlines())
    unsafe = {effect: times for effect, times in effects.items() if not effect.startswith("read ")}
    began: dict[str, float] = {}
    for step in steps:
        began[step.turn_id] = min(began.get(step.turn_id, step.created_at), step.created_at)
    late = [
        turn.id
        for before, turn in pairwise(turns)
        if before.conversation == turn.conversation and turn.id in began and began[turn.id] < before.ended_at
    ]
    statuses = Counter(turn.status for turn in turns)
    counts = {
        **{f"turns {status}": statuses[status] for status in sorted(statuses)},
        "unsafe effects": len(unsafe),
        "calls whose outcome is unknown": sum(step.status == "unknown" for step in steps),
        "approvals decided": sum(chaos.happened.won.values()),
        "questions of servers answered": sum(chaos.happened.answered.values()),
        **dict(sorted(chaos.happened.counts.items())),
    }
    broken = [
        *(f"{undrawn} turns have not ended or are not drawn" for _ in range(bool(undrawn))),
        *(f"{effect} happened {times} times" for effect, times in unsafe.items() if times > 1),
        *(f"turn {turn_id} began before the one before it had ended" for turn_id in late),
        *(f"{asked} was answered {times} times" for asked, times in chaos.happened.answered.items() if times > 1),
        *(f"approval {card} was won {times} times" for card, times in chaos.happened.won.items() if times > 1),
        *(
            f"turn {turn.id} is {turn.status} and was shown otherwise"
            for turn in turns
            if last_drawn.get(turn.id) != turn.status
        ),
        *(f"the audit does not fit: {misfit}" for misfit in misfits),
    ]
    # One more may have been on its way when the talking ended.
    taken = chaos.happened.counts["messages taken in"]
    refused = chaos.happened.counts["messages refused while the database was away"]
    if not taken <= len(turns) <= taken + refused + 1:
        broken.append(f"{taken} messages became {len(turns)} turns")
    return counts, broken


async def _main(server: Server | None, url: str, seconds: float, seed: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chaos = Chaos(server, url, folder, seconds, seed)
        try:
            await chaos.run()
            counts, broken = await _accounts(chaos, folder)
        finally:
            await chaos.database.close()
    table = Table("what", "how often", title=f"{seconds:.0f} s of chaos, seed {seed}")
    for what, how_often in counts.items():
        table.add_row(what, str(how_often))
    console = Console()
    console.print(table)
    for promise in broken[:20]:
        console.print(f"BROKEN: {promise}", markup=False)
    console.print(f"{len(broken)} promises broken" if broken else "every promise was kept")
    return 1 if broken else 0


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--sqlite", action="store_true", help="on a SQLite file instead of PostgreSQL")
    options = parser.parse_args()
    if options.sqlite:
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{copy_template(Path(folder) / 'chaos.db')}"
            sys.exit(asyncio.run(_main(None, url, options.seconds, options.seed)))
    with running_server() as server:
        sys.exit(asyncio.run(_main(server, server.new(), options.seconds, options.seed)))


if __name__ == "__main__":
    main()
