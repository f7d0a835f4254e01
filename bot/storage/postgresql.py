"""PostgreSQL: a few connections, a few threads, any number of processes beside this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from bot.errors import DatabaseError
from bot.storage.address import PostgresServer
from bot.storage.database import Database, Unwritable, consume_exception, json_text

T = TypeVar("T")

_CONNECTIONS = 4
_CONNECT_SECONDS = 4
_POOL_SECONDS = 10.0
_LONGEST_SECONDS = 20.0
"""How long a transaction may take: no server in good order takes longer, and one that hangs is never heard again."""
_SETTLING_SECONDS = 1.0
"""How long whoever is cancelled waits for its transaction to be over, and closing for all of them."""

KEEPALIVE: dict[str, Any] = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""How soon a dead link is noticed (libpq's connection parameters, seconds; the last one milliseconds)."""

# A process that freezes in the middle of a transaction must not hold its rows against everybody else: it loses them
# before those who wait for them give up, and long before their leases run out.
_SESSION = "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=8000"

_UNWRITABLE = {"53100": Unwritable.FULL, "25006": Unwritable.READ_ONLY, "58030": Unwritable.FAILING}
"""SQLSTATEs disk_full, read_only_sql_transaction and io_error."""
_CROSSED = ("40001", "40P01", "55P03")
"""Not serializable, deadlock, lock timeout (SQLSTATE)."""
_USELESS = ("25006",)
"""Read-only after a fail-over: what helps is another connection."""


class PostgresDatabase(Database):
    """A database on a server. Poolers in transaction mode are fine: nothing here depends on a session."""

    shared = True

    def __init__(self, address: PostgresServer) -> None:
        super().__init__(address.name)
        self.address = address
        url = sa.make_url(address.url).set(drivername="postgresql+psycopg")
        session = {} if "options=" in address.url else {"options": _SESSION}
        self._closed = False
        self._underway: dict[asyncio.Future[Any], _RunningTransaction] = {}
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="database")
        # One more for what keeps leases: it must not wait behind transactions that wait for somebody's lock.
        self._urgent = ThreadPoolExecutor(1, thread_name_prefix="database-urgent")
        self._engine = sa.create_engine(
            url,
            hide_parameters=True,  # what people said has no place in an error
            json_serializer=json_text,
            pool_size=_CONNECTIONS + 1,
            max_overflow=0,
            pool_timeout=_POOL_SECONDS,
            # Whatever the server prefers: after a lock has been waited for, the next statement must see what changed.
            isolation_level="READ COMMITTED",
            # Prepared statements belong to a session, which a pooler hands to somebody else after each transaction.
            connect_args={**KEEPALIVE, **session, "prepare_threshold": None, "application_name": "countersign"},
        )
        sa.event.listen(self._engine, "connect", _keep_the_line)
        sa.event.listen(self._engine, "close", _let_the_line_go)
        sa.event.listen(self._engine, "handle_error", _give_up_useless_connections)

    async def run_once(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction in a thread, without trying again."""
        return await self._run_in(self._threads, transaction)

    async def run_urgently(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction in the thread that is kept for such, without trying again."""
        return await self._run_in(self._urgent, transaction)

    async def close(self) -> None:
        """Finish what was asked for, within a limit, and close the connections."""
        self._closed = True
        if self._underway:
            await asyncio.wait(self._underway.keys(), timeout=_SETTLING_SECONDS)
        for errand in self._underway.values():
            errand.cut()
        for threads in (self._threads, self._urgent):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._underway:
            await asyncio.wait(self._underway.keys(), timeout=_CONNECT_SECONDS)
        self._engine.dispose()

    async def _run_in(self, threads: ThreadPoolExecutor, transaction: Callable[[sa.Connection], T]) -> T:
        if self._closed:
            raise DatabaseError(f"The database {self.name} is closed.")
        errand = _RunningTransaction()

        def whole() -> T:
            errand.began_at = time.monotonic()
            with self._engine.begin() as connection:
                errand.line = connection.connection.info["line"]
                return transaction(connection)

        future = asyncio.get_running_loop().run_in_executor(threads, whole)
        self._underway[future] = errand
        future.add_done_callback(self._over)
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=_LONGEST_SECONDS)
                errand.cut_if_it_hangs()
        except asyncio.CancelledError:
            # Whoever cancels goes on with the same rows, and must not overtake this.
            await asyncio.wait({future}, timeout=_SETTLING_SECONDS)
            raise
        return future.result()

    def _over(self, future: asyncio.Future[Any]) -> None:
        del self._underway[future]
        consume_exception(future)

    def is_transient(self, error: DBAPIError) -> bool:
        """The server is gone, restarting, out of room or out of connections, or two transactions got in each
        other's way: psycopg puts all of these among its operational errors.
        """
        return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)

    def unwritable(self, error: DBAPIError) -> Unwritable | None:
        """Return why the server takes no writes."""
        return _UNWRITABLE.get(getattr(error.orig, "sqlstate", None) or "")

    def is_serialization_failure(self, error: DBAPIError) -> bool:
        """Whether another transaction was in the way, and nothing is the matter with the server."""
        return getattr(error.orig, "sqlstate", None) in _CROSSED

    def fix(self, _reason: str) -> str:
        """What a person can do about it."""
        return "check that the server runs and that DATABASE_URL names it"


class _RunningTransaction:
    """A transaction in its thread. `line` is its connection's socket: cutting it is the one way to call a thread back
    that waits for a server which says nothing.
    """

    def __init__(self) -> None:
        self.began_at: float | None = None
        self.line: socket.socket | None = None

    def cut_if_it_hangs(self) -> None:
        if self.began_at is not None and time.monotonic() - self.began_at >= _LONGEST_SECONDS:
            self.cut()

    def cut(self) -> None:
        if self.line is not None:
            with contextlib.suppress(OSError):
                self.line.shutdown(socket.SHUT_RDWR)


def _keep_the_line(connection: Any, record: Any) -> None:
    # A descriptor of our own: the number of the connection's may belong to something else by the time it is cut.
    record.info["line"] = socket.socket(fileno=os.dup(connection.fileno()))


def _let_the_line_go(_connection: Any, record: Any) -> None:
    line: socket.socket | None = record.info.pop("line", None)
    if line is not None:
        line.close()


def _give_up_useless_connections(context: sa.ExceptionContext) -> None:
    if getattr(context.original_exception, "sqlstate", None) in _USELESS:
        context.is_disconnect = True
