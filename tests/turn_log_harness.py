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
from bot.storage.turn_log import SqlTurnLog
from tests.fakes.parts import HALL, message
from tests.migrated import migrated

START = 1_000_000.0


class Harness(Protocol):
    """A turn log under test: `log` is the present process's."""

    database: Database
    log: SqlTurnLog

    @property
    def time(self) -> float: ...

    @time.setter
    def time(self, seconds: float) -> None: ...

    async def restart(self) -> SqlTurnLog:
        """The process dies and another takes its place, as soon as anybody may."""
        ...

    def another_process(self) -> Harness:
        """Another process with connections of its own, at the same time."""
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
        """Another process on the same file, at the same time."""
        other = SqliteHarness(self._path)
        other.time = self.time
        return other

    async def close(self) -> None:
        await self.database.close()


class PostgresHarness:
    """Any number of processes, one server. A dead process's turns are anybody's when its lease has run out."""

    def __init__(self, address: str, *, time: float = START) -> None:
        self._address = address
        self._time = time
        self.database: Database = PostgresDatabase(PostgresServer(address))
        self.log = SqlTurnLog(self.database)

    @cached_property
    def _clock(self) -> psycopg.Connection:
        # Only when it is needed: to open one costs a server more than most tests do with it.
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
        """The log of another process."""
        return SqlTurnLog(self.database)

    def another_process(self) -> PostgresHarness:
        """Another process with connections of its own, at the same time."""
        return PostgresHarness(self._address, time=self.time)

    async def listen(self, on_wakeup: Callable[[Wakeup], None]) -> None:
        """Pass on the wakeups that every process gets."""
        await listen(PostgresServer(self._address), on_wakeup)

    def ask(self, question: str) -> Any:
        """The one answer of the server, beside everything else that happens."""
        row = self._clock.execute(question).fetchone()
        return row[0] if row else None

    async def close(self) -> None:
        await self.database.close()
        if "_clock" in self.__dict__:
            self._clock.close()


async def sqlite_harness(folder: Path) -> SqliteHarness:
    return SqliteHarness(await migrated(folder / "turns.db"))


async def running(
    harness: Harness, text: str = "hi", conversation: ConversationKey = HALL, holding: Collection[str] = ()
) -> Claim:
    """A turn that the present process drives, beside those of `holding`."""
    receipt = await harness.log.enqueue(message(text, conversation=conversation))
    (claim,) = await harness.log.claim(1, holding)
    assert claim.turn_id == receipt.turn_id
    return claim
