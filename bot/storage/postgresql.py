"""PostgreSQL: a pool of connections and threads, shared with any number of other processes, and one connection that
listens for their wakeups.

A pooler in transaction mode may drop all wakeups. Polling then finds the work later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from bot.domain.turns import Wakeup, WakeupKind
from bot.errors import DatabaseError
from bot.storage.address import PostgresServer
from bot.storage.codec import json_text
from bot.storage.database import CHANNEL, Database, Rank, Unwritable, consume_exception
from bot.storage.statements import Statements
from bot.storage.tables import use_postgresql

if TYPE_CHECKING:
    from bot.storage.pipeline import PipelinedConnection

T = TypeVar("T")

_CONNECTIONS = 4
_CONNECT_SECONDS = 4
_POOL_SECONDS = 10.0
_LONGEST_SECONDS = 20.0
"""Limit of one transaction in seconds, so that a dead connection is noticed."""
_SETTLING_SECONDS = 1.0
"""Seconds that a cancelled caller waits for its transaction to end, and `close` for all of them."""

KEEPALIVE: dict[str, Any] = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Detection of dead connections (libpq's parameters, in seconds; the last one in milliseconds)."""

# The server ends the transaction of a frozen process, and with it its row locks, before
# waiting processes give up and long before their leases expire.
_SESSION = "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=8000"

_UNWRITABLE = {"53100": Unwritable.FULL, "25006": Unwritable.READ_ONLY, "58030": Unwritable.FAILING}
"""SQLSTATEs disk_full, read_only_sql_transaction and io_error."""
_CONFLICTS = ("40001", "40P01", "55P03")
"""Not serializable, deadlock, lock timeout (SQLSTATE)."""
_OF_CONNECTION = ("25006", "0A000", "26000", "42P05")
"""Errors that a new connection does not have: read-only after a fail-over, because it reaches the new primary; a
prepared statement whose table was changed, or which the session does not know or has already.
"""

log = logging.getLogger(__name__)
_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0


class PostgresDatabase(Database):
    """A database on a server. Poolers in transaction mode work, because no transaction depends on a session."""

    shared = True

    def __init__(self, address: PostgresServer) -> None:
        from bot.storage.pipeline import PipelinedConnection, PipelinedDriver  # noqa: PLC0415 - SQLite needs none of it

        super().__init__(address.name)
        use_postgresql()
        self.address = address
        url = sa.make_url(address.url).set(drivername="postgresql+psycopg")
        session = {} if "options=" in address.url else {"options": _SESSION}
        self._closed = False
        self._running: dict[asyncio.Future[Any], _RunningTransaction] = {}
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="database")
        # One more for lease renewals, which must not wait behind transactions that wait for row locks.
        self._urgent = ThreadPoolExecutor(1, thread_name_prefix="database-urgent")
        self._engine = sa.create_engine(
            url,
            hide_parameters=True,  # messages of users must not appear in errors
            json_serializer=json_text,
            pool_size=_CONNECTIONS + 1,
            max_overflow=0,
            pool_timeout=_POOL_SECONDS,
            # Independent of the server's default: after a lock wait, the next statement must see committed changes.
            isolation_level="READ COMMITTED",
            # `pipeline.py` prepares statements; the driver's names of them are not safe behind a pooler.
            connect_args={**KEEPALIVE, **session, "prepare_threshold": None, "application_name": "countersign"},
        )
        dialect: Any = url.get_dialect()
        self._open = partial(PipelinedConnection, self._engine, Statements(dialect(paramstyle="numeric_dollar")))
        self._idle: list[PipelinedConnection] = []
        sa.event.listen(self._engine, "do_connect", lambda _1, _2, at, how: PipelinedDriver.connect(*at, **how))
        sa.event.listen(self._engine, "connect", _duplicate_socket)
        sa.event.listen(self._engine, "close", _close_socket)
        sa.event.listen(self._engine, "handle_error", _discard_outdated_connections)

    async def run_once(self, transaction: Callable[[sa.Connection], T], rank: Rank = "ordinary") -> T:
        """Run one transaction without retries, in a thread; urgent ones have one of their own."""
        return await self._run_in(self._urgent if rank == "urgent" else self._threads, transaction)

    async def close(self) -> None:
        """Finish requested transactions, within a time limit, and close the connections."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running.keys(), timeout=_SETTLING_SECONDS)
        for running in self._running.values():
            running.cut()
        for threads in (self._threads, self._urgent):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(self._running.keys(), timeout=_CONNECT_SECONDS)
        self._close_idle()
        self._engine.dispose()

    async def _run_in(self, threads: ThreadPoolExecutor, transaction: Callable[[sa.Connection], T]) -> T:
        if self._closed:
            raise DatabaseError(f"The database {self.name} is closed.")
        running = _RunningTransaction()

        def whole() -> T:
            running.began_at = time.monotonic()
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._open()
            try:
                with connection.begin():
                    running.socket = connection.connection.info["socket"]
                    result = transaction(connection)
            except BaseException:
                if connection.invalidated:
                    self._close_idle()  # the others were probably lost, too
                connection.close()  # which rolls back after a failed commit
                raise
            self._idle.append(connection)
            return result

        future = asyncio.get_running_loop().run_in_executor(threads, whole)
        self._running[future] = running
        future.add_done_callback(self._forget)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_LONGEST_SECONDS)
                running.cut_if_it_hangs()
        except asyncio.CancelledError:
            # The caller continues with the same rows and must not overtake this transaction.
            await asyncio.wait({future}, timeout=_SETTLING_SECONDS)
            raise
        return future.result()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _forget(self, future: asyncio.Future[Any]) -> None:
        del self._running[future]
        consume_exception(future)

    def is_transient(self, error: DBAPIError) -> bool:
        """Return True if the server is unreachable, restarting, out of disk space or out of connections, or if two
        transactions conflicted: psycopg reports all of these as operational errors.
        """
        return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)

    def unwritable(self, error: DBAPIError) -> Unwritable | None:
        """Return why the server takes no writes."""
        return _UNWRITABLE.get(getattr(error.orig, "sqlstate", None) or "")

    def is_serialization_failure(self, error: DBAPIError) -> bool:
        """Return True if the transaction failed only because of a concurrent one."""
        return getattr(error.orig, "sqlstate", None) in _CONFLICTS

    def fix(self, _reason: str) -> str:
        """Return the advice for the operator."""
        return "check that the server runs and that DATABASE_URL names it"


class _RunningTransaction:
    """A transaction in its thread. `socket` is that of its connection: shutting it down is the only way to end the wait
    of a thread for a silent server.
    """

    def __init__(self) -> None:
        self.began_at: float | None = None
        self.socket: socket.socket | None = None

    def cut_if_it_hangs(self) -> None:
        if self.began_at is not None and time.monotonic() - self.began_at >= _LONGEST_SECONDS:
            self.cut()

    def cut(self) -> None:
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


def _duplicate_socket(connection: Any, record: Any) -> None:
    # A duplicated descriptor, because the connection's number may be reused before it is shut down.
    record.info["socket"] = socket.socket(fileno=os.dup(connection.fileno()))


def _close_socket(_connection: Any, record: Any) -> None:
    duplicate: socket.socket | None = record.info.pop("socket", None)
    if duplicate is not None:
        duplicate.close()


def _discard_outdated_connections(context: sa.ExceptionContext) -> None:
    if getattr(context.original_exception, "sqlstate", None) in _OF_CONNECTION:
        context.is_disconnect = True


async def listen(address: PostgresServer, on_wakeup: Callable[[Wakeup], None]) -> None:
    """Pass on every wakeup until cancelled. After a lost connection, reconnect and check for missed work."""
    import psycopg  # noqa: PLC0415 - SQLite needs none of it

    pause = _SHORTEST_PAUSE
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(
                address.url, autocommit=True, application_name="countersign wakeups", **KEEPALIVE
            )
            async with connection:
                await connection.execute(f"listen {CHANNEL}")
                pause = _SHORTEST_PAUSE
                on_wakeup(Wakeup())
                async for notification in connection.notifies():
                    on_wakeup(parse_wakeup(notification.payload))
        except psycopg.Error as error:
            log.debug("connection for notifications lost, reconnecting: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def parse_wakeup(payload: str) -> Wakeup:
    """Parse a notification's payload. An unknown payload, of a later release, counts as "work available"."""
    kind, _, turn_id = payload.partition(" ")
    return Wakeup(WakeupKind(kind), turn_id) if kind in list(WakeupKind) else Wakeup()
