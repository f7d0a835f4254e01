"""Cost of a long report to the turns that run beside it.

    .venv/bin/python -m benchmarks.reports [ROWS]

Writes while an audit search over all rows repeats: on the thread of the writes, and on a connection of its own.
Prints how long a write takes, alone and beside both.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import sqlalchemy as sa

from bot.domain.audit import AuditQuery
from bot.storage.audit import read_page
from bot.storage.database import Database
from bot.storage.sqlite import open_sqlite
from bot.storage.tables import audit
from tests.migrated import create_database

ROWS = 200_000
WRITES = 300
_BY_KIND = AuditQuery(kinds=("rare",))


def _fill(connection: sa.Connection, rows: int) -> None:
    """Add audit rows, whose hashes do not matter to a search."""
    connection.execute(
        audit.insert(),
        [
            {
                "seq": n,
                "at": float(n),
                "kind": "ran",
                "conversation": f"api:w:{n % 997}:",
                "turn_id": f"t{n}",
                "actor": f"api:u{n % 89}",
                "subject": "",
                "body": '{"tool": "files.read", "step": 1, "status": "done"}',
                "previous": "",
                "hash": f"{n:064x}",
                "mac": "",
            }
            for n in range(1, rows + 1)
        ],
    )


def _search(connection: sa.Connection) -> int:
    return read_page(connection, _BY_KIND, 20, 0)[1]


def _write(connection: sa.Connection) -> None:
    connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


@contextlib.asynccontextmanager
async def _repeated(search: Callable[[], Awaitable[int]] | None) -> AsyncIterator[list[float]]:
    """Repeat a search during the block. Yields the seconds of each."""
    seconds: list[float] = []

    async def repeat(search: Callable[[], Awaitable[int]]) -> None:
        while True:
            began = time.perf_counter()
            await search()
            seconds.append(time.perf_counter() - began)

    task = asyncio.create_task(repeat(search)) if search else None
    try:
        yield seconds
    finally:
        if task:
            task.cancel()
            await asyncio.wait({task})


async def _measure(database: Database, writes: int, name: str, search: Callable[[], Awaitable[int]] | None) -> float:
    """Print and return the 95th percentile of writes beside a search, in milliseconds."""
    took = []
    async with _repeated(search) as searches:
        for _ in range(writes):
            began = time.perf_counter()
            await database.run(_write)
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)
    cuts = statistics.quantiles(took, n=20)
    search_ms = statistics.median(searches) * 1000 if searches else 0
    print(f"{name:32} write p50 {cuts[9]:7.1f} ms  p95 {cuts[18]:7.1f} ms   search p50 {search_ms:7.1f} ms")
    return cuts[18]


async def main(rows: int, writes: int = WRITES) -> None:
    """Measure all three, in one run."""
    with tempfile.TemporaryDirectory() as folder:
        database = open_sqlite(await create_database(Path(folder) / "a.db"))
        try:
            await database.run(lambda connection: _fill(connection, rows))
            alone = await _measure(database, writes, "no search", None)
            shared = await _measure(database, writes, "search on the writer's thread", lambda: database.run(_search))
            apart = await _measure(database, writes, "search on its own connection", lambda: database.read(_search))
            print(f"p95 of a write against no search: {shared / alone:.1f} times, now {apart / alone:.1f} times")
        finally:
            await database.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS))
