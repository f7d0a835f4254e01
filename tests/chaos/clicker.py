"""A process that decides waiting calls at random: `python -m tests.chaos.clicker DATABASE_URL FOLDER SEED`.

Each decision that counted is a line in the folder's `decisions`, written afterwards: a process that dies in between has
decided all the same.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import sqlalchemy as sa

from bot.domain.approvals import Decided, Decision, DecisionType
from bot.domain.conversations import Member
from bot.engine.engine import Engine
from bot.storage.database import Database
from tests.chaos.worker import APPROVER, Harness, engine_on

AWAITING = sa.text(
    "select a.id from approvals a join steps s on s.turn_id = a.turn_id and s.n = a.n"
    " where s.status = 'awaiting' order by a.id"
)
PAUSE = 0.02


async def click(database: Database, engine: Engine, decisions: Harness, chance: random.Random) -> None:
    """Decide until nothing waits any more."""
    while waiting := await database.run(lambda connection: list(connection.execute(AWAITING).scalars())):
        for card in chance.sample(waiting, min(len(waiting), 5)):
            verdict = chance.choice((DecisionType.APPROVE, DecisionType.APPROVE, DecisionType.DENY))
            settlement = await engine.approvals.decide(Decision(card, 1, verdict, APPROVER), Member(APPROVER))
            if isinstance(settlement, Decided):
                decisions.write(f"{card} {verdict.value}")
        await asyncio.sleep(PAUSE)


async def main(url: str, folder: Path, seed: int) -> None:
    """Click, and let go of the database."""
    database, engine = engine_on(url, folder)
    try:
        await click(database, engine, Harness(folder / "decisions"), random.Random(seed))
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
