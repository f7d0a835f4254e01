"""SQLite: one thread that commits all queued transactions together, and two connections that only read.

Group commit makes `synchronous=FULL` affordable: 64 conversations need one sync to disk instead of 64. In WAL mode a
reader sees a snapshot and blocks no writer, so that a long report delays no turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, PriorityQueue
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from bot.errors import DatabaseError, DatabaseUnavailable
from bot.storage.codec import json_text
from bot.storage.database import FUNCTION, Database, Rank, Unwritable, consume_exception
from bot.storage.statements import PreparedConnection, Statements

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

_BUSY_MILLISECONDS = 5000
_READERS_MILLISECONDS = 100
"""Time that emptying the write-ahead log waits for readers; transactions wait meanwhile."""
_LARGEST_BATCH = 64
_CLOSING_SECONDS = 7.0
_INTERRUPT_SECONDS = 0.02
_READERS = 2
_LONGEST_READ = 60.0
"""Limit of one query of a report in seconds, with its wait for a connection."""
_LEAST_FREE = 1024 * 1024
"""Bytes on the disk of the file: with fewer it counts as full, although a short transaction may still fit."""
_UNWRITABLE = {"full": Unwritable.FULL, "readonly": Unwritable.READ_ONLY, "disk i/o": Unwritable.FAILING}
_MOVED = "the file was deleted or replaced while it was in use"


_BEGIN = sa.text("begin immediate")


_DELAYS = {"arrival": 0.0, "ordinary": 1.5}
"""Seconds by which a queued transaction is late: for so long, those go first that come later with a smaller delay."""
_LAST = math.inf


@dataclass(frozen=True, slots=True)
class _Job:
    """Work on the connection and the future of its result: a transaction, unless it runs `alone`, outside of any."""

    work: Callable[[sa.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    alone: bool = False


_Outcome = tuple[Any, Exception | None]
"""Outcome of a transaction: its result and no error, or its error."""


class SqliteDatabase(Database):
    """A database file. `clock` returns epoch seconds for SQL's `now()`."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(str(path))
        self._clock = clock
        self._path = path
        self._file = _identity(path)
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)),
            hide_parameters=True,  # messages of users must not appear in errors
            json_serializer=json_text,
            poolclass=sa.StaticPool,
            connect_args={"check_same_thread": False},
        )
        sa.event.listen(self._engine, "connect", self._prepare)
        self._statements = Statements(self._engine.dialect)
        self._connection: PreparedConnection | None = None
        self._readers: AsyncEngine | None = None
        self._reads: dict[Any, asyncio.Future[Any]] = {}
        self._jobs: PriorityQueue[tuple[float, int, _Job | None]] = PriorityQueue()
        self._numbers = itertools.count()
        self._closed = False
        self._working = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="database", daemon=True)
        self._thread.start()

    async def run_once(self, transaction: Callable[[sa.Connection], T], rank: Rank = "ordinary") -> T:
        """Run one transaction, in a batch with other queued ones, without retries. An urgent one is in the next."""
        return await self._run(transaction, rank)

    async def _run(self, work: Callable[[sa.Connection], T], rank: Rank, *, alone: bool = False) -> T:
        if self._closed:
            raise DatabaseError(f"The database {self.name} is closed.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # Cancellation affects the future only; the transaction runs.
        due = time.monotonic() + _DELAYS[rank] if rank in _DELAYS else -math.inf
        self._put(due, _Job(work, loop, future, alone))
        return await future

    async def purge_files(self, *, whole: bool) -> bool:
        """Empty the write-ahead log into the file, in which `secure_delete` has overwritten deleted rows. If
        `whole` is True, write the file anew before: its free pages may be older than that setting. Return False if a
        reader or a backup prevented it for now.
        """
        try:
            return await self._run(_rewrite if whole else _empty_log, "ordinary", alone=True)
        except DBAPIError as error:
            self._handle_error(error)
            return False

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query of a report on a connection of its own, for at most a minute. It sees everything that was
        committed before. Raises errors as `run` does.
        """
        if self._closed:
            raise DatabaseError(f"The database {self.name} is closed.")
        try:
            async with asyncio.timeout(_LONGEST_READ):
                readers = self._readers or await self._open_readers()
                async with readers.connect() as connection:
                    return await self._read_with(connection, query)
        except (TimeoutError, sa.exc.TimeoutError) as error:
            raise DatabaseUnavailable(
                f"The database {self.name} is away: a query took too long.", "ask for a shorter period"
            ) from error
        except DBAPIError as error:
            self._handle_error(error)
            raise self._unavailable(error) from error

    async def close(self) -> None:
        """Finish requested transactions, interrupt queries of reports, and close the connections."""
        if not self._closed:
            self._closed = True
            for driver, task in tuple(self._reads.items()):
                await _interrupt(driver, task)
            if self._readers is not None:
                await self._readers.dispose()
            self._put(_LAST, None)
            # A limit, because another program may lock the file. The thread ends by itself or with the process.
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
        """Return the advice for the operator."""
        if _MOVED in reason:
            return "start again: what was written to the old file is in it, wherever it is now"
        if "locked" in reason or "busy" in reason:
            return "see which other program has the file open"
        return "check the file, its folder and its disk"

    async def _open_readers(self) -> AsyncEngine:
        create_async_engine = await asyncio.to_thread(self._import_async_engine)
        if self._readers is None:  # another read may have opened them meanwhile
            self._readers = create_async_engine(
                sa.URL.create("sqlite+aiosqlite", database=str(self._path)),
                hide_parameters=True,  # messages of users must not appear in errors
                pool_size=_READERS,
                max_overflow=0,
                pool_timeout=_LONGEST_READ,
            )
            sa.event.listen(self._readers.sync_engine, "connect", self._prepare_reader)
        return self._readers

    def _import_async_engine(self) -> Callable[..., AsyncEngine]:
        # SQLAlchemy cannot build a statement in one thread while another one imports its ORM, as this does.
        with self._working:
            from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - a start needs no report

            return create_async_engine

    async def _read_with(self, connection: AsyncConnection, query: Callable[[sa.Connection], T]) -> T:
        """Run a query in a snapshot. If the caller is cancelled, its statement is interrupted."""

        def snapshot(reader: sa.Connection) -> T:
            reader.exec_driver_sql("begin")
            self._check_file()
            return query(reader)

        driver: Any = (await connection.get_raw_connection()).driver_connection
        # A task of its own: a cancelled statement would leave a connection whose thread still executes it.
        task = asyncio.ensure_future(connection.run_sync(snapshot))
        self._reads[driver] = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # Also if the caller is cancelled once more: the connection must not go back to the pool in use.
            interrupting = asyncio.ensure_future(_interrupt(driver, task))
            while not interrupting.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(interrupting)
            task.add_done_callback(consume_exception)
            if not task.done():
                await connection.invalidate()
            raise
        finally:
            self._reads.pop(driver, None)
            if self._closed:
                await connection.invalidate()  # the pool that it came from was closed without it
        return task.result()

    def _write(self, connection: sa.Connection) -> None:
        super()._write(connection)
        if shutil.disk_usage(self._path.parent).free < _LEAST_FREE:
            raise DBAPIError(None, None, sqlite3.OperationalError("the disk is full"))

    # ------------------------------------------------------------------ in the thread

    def _work(self) -> None:
        while jobs := self._next_batch():
            with self._working:
                if transactions := [job for job in jobs if not job.alone]:
                    _resolve_futures(transactions, self._commit(transactions))
                for job in jobs:
                    if job.alone:
                        _resolve_futures([job], [self._run_alone(job)])
        self._engine.dispose()

    def _next_batch(self) -> Sequence[_Job]:
        """Return all queued transactions, at least one; empty once the database is closed."""
        batch: list[_Job] = []
        with contextlib.suppress(Empty):
            _, _, job = self._jobs.get()
            while job is not None:
                batch.append(job)
                if len(batch) == _LARGEST_BATCH:
                    return batch
                _, _, job = self._jobs.get_nowait()
            # Closing: earlier transactions are finished first.
            if batch:
                self._put(_LAST, None)
        return batch

    def _put(self, due: float, job: _Job | None) -> None:
        self._jobs.put((due, next(self._numbers), job))

    def _commit(self, jobs: Sequence[_Job]) -> Sequence[_Outcome]:
        try:
            connection = self._connection
            if connection is None or connection.invalidated:
                self._connection = connection = PreparedConnection(self._engine, self._statements)
            with connection.begin():
                connection.execute(_BEGIN)
                self._check_file()
                return [(job.work(connection), None) for job in jobs]
        except BaseException as error:  # noqa: BLE001 - the caller gets it; this thread must live
            reason = str(getattr(error, "orig", ""))
            # Each part of the batch would only wait for the lock again.
            if len(jobs) == 1 or "locked" in reason or _MOVED in reason:
                return [(None, _to_exception(error)) for _ in jobs]
            # The whole batch was rolled back. It is split until the failing transaction is alone;
            # failures are so rare that this costs less than a savepoint for each.
            half = len(jobs) // 2
            return [*self._commit(jobs[:half]), *self._commit(jobs[half:])]

    def _run_alone(self, job: _Job) -> _Outcome:
        try:
            with self._engine.connect() as connection:
                self._check_file()
                return job.work(connection), None
        except BaseException as error:  # noqa: BLE001 - the caller gets it; this thread must live
            return None, _to_exception(error)

    def _check_file(self) -> None:
        """Raise an error if the file was deleted or replaced, because writes to it would be lost."""
        if _identity(self._path) != self._file:
            raise DBAPIError(None, None, sqlite3.OperationalError(_MOVED))

    def _prepare_reader(self, connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.create_function(FUNCTION, 0, self._clock)
        # Not opened with mode=ro: such a connection makes -wal and -shm, but leaves them behind when it is closed.
        for pragma in ("query_only=on", f"busy_timeout={_BUSY_MILLISECONDS}"):
            connection.execute(f"pragma {pragma}").close()

    def _prepare(self, connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.create_function(FUNCTION, 0, self._clock)
        for pragma in (
            "journal_mode=wal",
            "synchronous=full",
            f"busy_timeout={_BUSY_MILLISECONDS}",
            "foreign_keys=on",
            "secure_delete=on",  # deleted messages must not be readable in the file
        ):
            connection.execute(f"pragma {pragma}")


def _empty_log(connection: sa.Connection) -> bool:
    """Move the write-ahead log into the file and cut it to no length. Return False if a reader still needs it."""
    connection.exec_driver_sql(f"pragma busy_timeout={_READERS_MILLISECONDS}")
    try:
        is_busy, _, _ = connection.exec_driver_sql("pragma wal_checkpoint(truncate)").one()
    finally:
        connection.exec_driver_sql(f"pragma busy_timeout={_BUSY_MILLISECONDS}")
    return not is_busy


def _rewrite(connection: sa.Connection) -> bool:
    """Write the file anew, without free pages, and empty the log."""
    connection.exec_driver_sql("vacuum")
    return _empty_log(connection)


async def _interrupt(driver: Any, task: asyncio.Future[Any]) -> None:
    """Interrupt a query until it has ended: an interrupt affects only the statement that runs at this moment."""
    deadline = time.monotonic() + _CLOSING_SECONDS
    while not task.done() and time.monotonic() < deadline:
        await driver.interrupt()
        await asyncio.wait({task}, timeout=_INTERRUPT_SECONDS)


def open_sqlite(path: Path, *, clock: Callable[[], float] = time.time) -> SqliteDatabase:
    """Open a database file, creating it and its folder. Raises DatabaseError if the path is unusable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The rows hold messages: no other user of the machine may read them.
        if not path.exists():
            path.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("pragma schema_version")
    except (OSError, sqlite3.Error) as error:
        raise DatabaseError(
            f"The database {path} cannot be opened: {error}.", "check the folder and DATABASE_URL or DATA_FOLDER"
        ) from error
    return SqliteDatabase(path, clock=clock)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _to_exception(error: BaseException) -> Exception:
    """Return the error for a future. SystemExit and KeyboardInterrupt are wrapped, because they would end the event
    loop.
    """
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"the transaction raised {type(error).__name__}")
    wrapped.__cause__ = error
    return wrapped


def _resolve_futures(jobs: Sequence[_Job], outcomes: Sequence[_Outcome]) -> None:
    """Set the results of futures with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Job, _Outcome]]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        by_loop.setdefault(job.loop, []).append((job, outcome))
    for loop, pairs in by_loop.items():
        # The event loop has been closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, pairs)


def _settle(pairs: Sequence[tuple[_Job, _Outcome]]) -> None:
    for job, (result, error) in pairs:
        if job.future.done():
            continue
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(result)
