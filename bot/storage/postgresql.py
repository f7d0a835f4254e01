"""PostgreSQL: a few connections, a few threads, any number of processes beside this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from bot.errors import DatabaseError
from bot.storage.address import PostgresServer
from bot.storage.database import Database, heard

T = TypeVar("T")

_CONNECTIONS = 4
_POOL_SECONDS = 10.0

KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""How soon a dead link is noticed (libpq's connection parameters, seconds; the last one milliseconds)."""

# A process that freezes in the middle of a transaction must not hold its rows against everybody else.
_SESSION = "-c idle_in_transaction_session_timeout=10000 -c lock_timeout=8000"


class PostgresDatabase(Database):
    """A database on a server. Poolers in transaction mode are fine: nothing here depends on a session."""

    shared = True

    def __init__(self, address: PostgresServer) -> None:
        super().__init__(address.name)
        self.address = address
        url = sa.make_url(address.url).set(drivername="postgresql+psycopg")
        session = {} if "options=" in address.url else {"options": _SESSION}
        self._closed = False
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="database")
        self._engine = sa.create_engine(
            url,
            hide_parameters=True,  # what people said has no place in an error
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_POOL_SECONDS,
            # Prepared statements belong to a session, which a pooler hands to somebody else after each transaction.
            connect_args={**KEEPALIVE, **session, "prepare_threshold": None, "application_name": "countersign"},
        )

    async def run_once(self, transaction: Callable[[sa.Connection], T]) -> T:
        """Run one transaction in a thread, without trying again."""

        def whole() -> T:
            with self._engine.begin() as connection:
                return transaction(connection)

        if self._closed:
            raise DatabaseError(f"The database {self.name} is closed.")
        future = asyncio.get_running_loop().run_in_executor(self._threads, whole)
        future.add_done_callback(heard)
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Finish what was asked for and close the connections."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        self._engine.dispose()

    def passing(self, error: DBAPIError) -> bool:
        """The server is gone, restarting, out of room or out of connections, or two transactions got in each
        other's way: psycopg puts all of these among its operational errors.
        """
        return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)

    def fix(self, _reason: str) -> str:
        """What a person can do about it."""
        return "check that the server runs and that DATABASE_URL names it"
