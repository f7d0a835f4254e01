"""A turn log on each database, with a clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import psycopg

from bot.domain.conversations import ConversationKey
from bot.domain.turns import Claim, Wakeup
from bot.storage.address import PostgresServer
from bot.storage.database import Database
from bot.storage.postgresql import PostgresDatabase, listen
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import HALL, message
from tests.migrated import create_database

START = 1_000_000.0


class Harness(Protocol):
    """A turn log under test. `log` is the one of the current process."""

    database: Database
    log: SqlTurnLog

    @property
    def time(self) -> float: ...

    @time.setter
    def time(self, seconds: float) -> None: ...

    async def restart(self) -> SqlTurnLog:
        """Replace the process with another one that takes over its turns, and return the new process's log."""
        ...

    def another_process(self) -> Harness:
        """Return a second, concurrent process with its own connections."""
        ...

    async def close(self) -> None: ...


class SqliteHarness:
    """Processes on one file."""

    def __init__(self, path: Path) -> None:
        self.time = START
        self._path = path
        self.database: Database = self._open()
        self.log = SqlTurnLog(self.database)

    def _open(self) -> Database:
        return open_sqlite(self._path, clock=lambda: self.time)

    async def restart(self) -> SqlTurnLog:
        await self.database.close()
        self.database = self._open()
        self.log = SqlTurnLog(self.database)
        await self.log.adopt_orphans()
        return self.log

    def another_process(self) -> SqliteHarness:
        """Return a second, concurrent process on the same file."""
        other = SqliteHarness(self._path)
        other.time = self.time
        return other

    async def close(self) -> None:
        await self.database.close()


class PostgresHarness:
    """Processes on one server. Any process may claim the turns of a dead process after its lease has expired."""

    def __init__(self, address: str, *, time: float = START) -> None:
        self._address = address
        self._time = time
        self.database: Database = PostgresDatabase(PostgresServer(address))
        self.log = SqlTurnLog(self.database)

    @cached_property
    def _clock(self) -> psycopg.Connection:
        # Opened on demand, because a connection costs the server more than most tests do.
        return psycopg.connect(self._address, autocommit=True)

    @property
    def time(self) -> float:
        return self._time

    @time.setter
    def time(self, seconds: float) -> None:
        self._time = seconds
        self._clock.execute("update test_clock set at = %s", [seconds])

    async def restart(self) -> SqlTurnLog:
        self.time += 16
        self.log = SqlTurnLog(self.database)
        return self.log

    def another(self) -> SqlTurnLog:
        """Return the log of another process."""
        return SqlTurnLog(self.database)

    def another_process(self) -> PostgresHarness:
        """Return a second, concurrent process with its own connections."""
        return PostgresHarness(self._address, time=self.time)

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Pass on the wakeups that every process gets."""
        await listen(PostgresServer(self._address), on_wakeup)

    def ask(self, question: str) -> Any:
        """Run a query on a separate connection and return its single value."""
        row = self._clock.execute(question).fetchone()
        return row[0] if row else None

    async def close(self) -> None:
        await self.database.close()
        if "_clock" in self.__dict__:
            self._clock.close()


async def sqlite_harness(folder: Path) -> SqliteHarness:
    return SqliteHarness(await create_database(folder / "turns.db"))


async def running(
    harness: Harness, text: str = "hi", conversation: ConversationKey = HALL, holding: Collection[str] = ()
) -> Claim:
    """Add a turn and claim it in the current process, which also holds the turns in `holding`."""
    receipt = await harness.log.enqueue(message(text, conversation=conversation))
    (claim,) = await harness.log.claim(1, holding)
    assert claim.turn_id == receipt.turn_id
    return claim
