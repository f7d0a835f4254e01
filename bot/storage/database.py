"""One database and the thread that talks to it.

A transaction is a plain function of a connection. It runs in the database's own thread, whole or not at all, whatever
happens to the task that asked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from bot.errors import DatabaseError
from bot.storage.address import sqlite_path
from bot.storage.clock import SQLITE_FUNCTION

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRIES = 6
_BUSY_MILLISECONDS = 5000


class Database:
    """A SQLite database: one connection, one thread, one writer.

    `clock` gives epoch seconds and is what SQL's `now()` returns.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            poolclass=sa.StaticPool,
            connect_args={"check_same_thread": False},
        )
        sa.event.listen(self._engine, "connect", self._prepare)
        sa.event.listen(self._engine, "begin", _begin_immediate)

    async def run(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction and return its result once it is committed.

        A database that is locked or full for the moment is tried again with growing pauses. Raises DatabaseError when
        that does not help. Transactions must therefore do no harm when they are run twice.
        """
        for attempt in range(_RETRIES):
            try:
                return await self.run_once(transaction)
            except OperationalError as error:
                reason = str(error.orig)
                if attempt == _RETRIES - 1 or not _passing(reason):
                    raise DatabaseError(f"The database {self.path} failed: {reason}.", _fix_for(reason)) from error
                log.warning("the database is busy or full (%s), trying again", reason)
                await asyncio.sleep(0.1 * 2**attempt * random.uniform(0.5, 1))  # noqa: S311 - jitter is no secret
        raise AssertionError

    async def run_once(self, work: Callable[[sa.Connection], T]) -> T:
        """Run one transaction without retrying it. Raises what SQLAlchemy raises."""

        def whole() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        future = asyncio.get_running_loop().run_in_executor(self._thread, whole)
        future.add_done_callback(_heard)
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Finish what was asked for and close the connection."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.dispose)
        self._thread.shutdown()

    def _prepare(self, connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.create_function(SQLITE_FUNCTION, 0, self._clock)
        for pragma in (
            "journal_mode=wal",
            "synchronous=full",
            f"busy_timeout={_BUSY_MILLISECONDS}",
            "foreign_keys=on",
        ):
            connection.execute(f"pragma {pragma}")


def open_sqlite(url: str, *, clock: Callable[[], float] = time.time) -> Database:
    """Open the database a `sqlite:///path` address names, making its folder.

    Raises DatabaseError if the address or the place cannot be used.
    """
    path = sqlite_path(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The rows hold what people said: nobody else on the machine needs them.
        if not path.exists():
            path.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("pragma schema_version")
    except (OSError, sqlite3.Error) as error:
        raise DatabaseError(
            f"The database {path} cannot be opened: {error}.", "check the folder and DATABASE_URL"
        ) from error
    return Database(path, clock=clock)


def _begin_immediate(connection: sa.Connection) -> None:
    connection.exec_driver_sql("begin immediate")


def _heard(future: asyncio.Future[Any]) -> None:
    """Take note of an error whose task is gone, so that asyncio does not complain that nobody did."""
    if not future.cancelled():
        future.exception()


def _passing(reason: str) -> bool:
    return any(word in reason for word in ("locked", "busy", "full"))


def _fix_for(reason: str) -> str:
    if "full" in reason:
        return "free some space on its disk"
    if _passing(reason):
        return "see which other program has the file open"
    return "check the file and its folder"
