"""SQLite: one connection, one thread that commits what has queued up in one transaction.

Group commit makes `synchronous=FULL` affordable: sixty-four conversations pay for one sync to disk, not for
sixty-four.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from queue import Empty, PriorityQueue
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from bot.errors import DatabaseError
from bot.storage.clock import FUNCTION
from bot.storage.database import Database, Unwritable, json_text

T = TypeVar("T")

_BUSY_MILLISECONDS = 5000
_LARGEST_BATCH = 64
_CLOSING_SECONDS = 7.0
_LEAST_FREE = 1024 * 1024
"""Bytes on the disk of the file: with fewer it counts as full, although a short transaction may still fit."""
_UNWRITABLE = {"full": Unwritable.FULL, "readonly": Unwritable.READ_ONLY, "disk i/o": Unwritable.FAILING}
_MOVED = "the file was deleted or replaced while it was in use"


class _Rank(IntEnum):
    """What comes first."""

    URGENT = 0
    ORDINARY = 1
    LAST = 2


@dataclass(frozen=True, slots=True)
class _Job:
    """A transaction and the future that waits for it."""

    work: Callable[[sa.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How a transaction went: `error` or else `result`."""

    result: Any = None
    error: Exception | None = None


class SqliteDatabase(Database):
    """A database file. `clock` gives epoch seconds and is what SQL's `now()` returns."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(str(path))
        self._clock = clock
        self._path = path
        self._file = _identity(path)
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            hide_parameters=True,  # what people said has no place in an error
            json_serializer=json_text,
            poolclass=sa.StaticPool,
            connect_args={"check_same_thread": False},
        )
        sa.event.listen(self._engine, "connect", self._prepare)
        self._jobs: PriorityQueue[tuple[_Rank, int, _Job | None]] = PriorityQueue()
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="database", daemon=True)
        self._thread.start()

    async def run_once(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction, together with whatever else is waiting, without trying again."""
        return await self._run(transaction, _Rank.ORDINARY)

    async def run_urgently(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction with the next ones that are committed, without trying again."""
        return await self._run(transaction, _Rank.URGENT)

    async def _run(self, transaction: Callable[[sa.Connection], T], rank: _Rank) -> T:
        if self._closed:
            raise DatabaseError(f"The database {self.name} is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # Whoever stops waiting cancels the future alone: the transaction is run all the same.
        self._put(rank, _Job(transaction, loop, future))
        return await future

    async def close(self) -> None:
        """Finish what was asked for and close the connection."""
        if not self._closed:
            self._closed = True
            self._put(_Rank.LAST, None)
            # A limit: another program may hold the file. The thread ends by itself, or with the process.
            await asyncio.to_thread(self._thread.join, _CLOSING_SECONDS)

    def is_transient(self, error: DBAPIError) -> bool:
        """Return True if another program has locked the file."""
        reason = str(error.orig).lower()
        return any(word in reason for word in ("locked", "busy"))

    def unwritable(self, error: DBAPIError) -> Unwritable | None:
        """Return why the file takes no writes."""
        reason = str(error.orig).lower()
        return next((why for word, why in _UNWRITABLE.items() if word in reason), None)

    def fix(self, reason: str) -> str:
        """What a person can do about it."""
        if _MOVED in reason:
            return "start again: what was written to the old file is in it, wherever it is now"
        if "locked" in reason or "busy" in reason:
            return "see which other program has the file open"
        return "check the file, its folder and its disk"

    def _write(self, connection: sa.Connection) -> None:
        super()._write(connection)
        if shutil.disk_usage(self._path.parent).free < _LEAST_FREE:
            raise DBAPIError(None, None, sqlite3.OperationalError("the disk is full"))

    # ------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        while jobs := self._next_batch():
            _hand_out(jobs, self._commit(jobs))
        self._engine.dispose()

    def _next_batch(self) -> Sequence[_Job]:
        """Everything that waits, at least one; nothing when the database is closed."""
        batch: list[_Job] = []
        with contextlib.suppress(Empty):
            _, _, job = self._jobs.get()
            while job is not None:
                batch.append(job)
                if len(batch) == _LARGEST_BATCH:
                    return batch
                _, _, job = self._jobs.get_nowait()
            # Closing: what came before it is finished first.
            if batch:
                self._put(_Rank.LAST, None)
        return batch

    def _put(self, rank: _Rank, job: _Job | None) -> None:
        self._jobs.put((rank, next(self._numbers), job))

    def _commit(self, jobs: Sequence[_Job]) -> Sequence[_Outcome]:
        try:
            with self._engine.begin() as connection:
                connection.exec_driver_sql("begin immediate")
                self._check_the_file()
                return [_Outcome(job.work(connection)) for job in jobs]
        except BaseException as error:  # noqa: BLE001 - whoever asked gets it; this thread must live
            if len(jobs) == 1 or _is_everybodys(error):
                return [_Outcome(error=_tellable(error)) for _ in jobs]
            # Nothing of the batch happened. In ever smaller parts each finds out whether the mistake was its own;
            # failures are so rare that this costs less than a savepoint for each.
            half = len(jobs) // 2
            return [*self._commit(jobs[:half]), *self._commit(jobs[half:])]

    def _check_the_file(self) -> None:
        """A file that was deleted or replaced takes everything that is written and gives nothing back."""
        if _identity(self._path) != self._file:
            raise DBAPIError(None, None, sqlite3.OperationalError(_MOVED))

    def _prepare(self, connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.create_function(FUNCTION, 0, self._clock)
        for pragma in (
            "journal_mode=wal",
            "synchronous=full",
            f"busy_timeout={_BUSY_MILLISECONDS}",
            "foreign_keys=on",
        ):
            connection.execute(f"pragma {pragma}")


def open_sqlite(path: Path, *, clock: Callable[[], float] = time.time) -> SqliteDatabase:
    """Open a database file, making it and its folder. Raises DatabaseError if the place cannot be used."""
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
    return SqliteDatabase(path, clock=clock)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _tellable(error: BaseException) -> Exception:
    """What a future may hand on: a wish to end the process would end the event loop instead of its task."""
    if isinstance(error, Exception):
        return error
    told = RuntimeError(f"the transaction raised {type(error).__name__}")
    told.__cause__ = error
    return told


def _is_everybodys(error: BaseException) -> bool:
    """Whether no part of a batch would fare better: each would only wait for the lock again."""
    reason = str(getattr(error, "orig", ""))
    return "locked" in reason or _MOVED in reason


def _hand_out(jobs: Sequence[_Job], outcomes: Sequence[_Outcome]) -> None:
    """Tell whoever asked, one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, _Outcome]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        by_loop.setdefault(job.loop, []).append((job, outcome))
    for loop, pairs in by_loop.items():
        # A loop that has closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, pairs)


def _settle(pairs: Sequence[tuple[_Job, _Outcome]]) -> None:
    for job, outcome in pairs:
        if job.future.done():
            continue
        if outcome.error is not None:
            job.future.set_exception(outcome.error)
        else:
            job.future.set_result(outcome.result)
