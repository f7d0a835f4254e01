"""Statements of a transaction on PostgreSQL that are sent together, and prepared on the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import bindparam

from bot.errors import DatabaseError
from bot.storage.address import PostgresServer
from bot.storage.pipeline import PipelinedDriver
from bot.storage.postgresql import PostgresDatabase
from tests.postgres import Server

notes = sa.table("notes", sa.column("id", sa.Integer), sa.column("text", sa.Text))
add = notes.insert().values(id=bindparam("id"), text=bindparam("text"))
change = notes.update().where(notes.c.id == bindparam("n")).values(text=bindparam("new"))
read = sa.select(notes.c.text).where(notes.c.id == bindparam("n"))
count_prepared = sa.text("select count(*) from pg_prepared_statements")


@pytest.fixture
async def address(request: pytest.FixtureRequest) -> str:
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    address = await asyncio.to_thread(server.empty)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create table notes (id integer primary key, text varchar not null)")
    return address


@pytest.fixture
async def database(address: str) -> AsyncIterator[PostgresDatabase]:
    async with opened(address) as database:
        yield database


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresDatabase]:
    """Open a database on which each statement was executed before."""
    database = PostgresDatabase(PostgresServer(address))
    try:
        for n in (1, 2):
            await database.run(partial(write_and_read, n=n))
        yield database
    finally:
        await database.close()


def write_and_read(connection: sa.Connection, n: int) -> str:
    connection.execute(add, {"id": n, "text": "first"})
    connection.execute(change, {"n": n, "new": "second"})
    return str(connection.execute(read, {"n": n}).scalar_one())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of statements of each wait for the server."""
    waits: list[int] = []
    flush = PipelinedDriver.flush

    def counted(driver: PipelinedDriver, end: bytes = b"") -> None:
        waits.append(len(driver.waiting) + bool(end))
        flush(driver, end)

    monkeypatch.setattr(PipelinedDriver, "flush", counted)
    return waits


async def test_statements_that_nobody_reads_are_sent_with_the_next_one_or_the_commit(
    database: PostgresDatabase, waits: list[int]
) -> None:
    def work(connection: sa.Connection) -> str:
        text = write_and_read(connection, 3)
        connection.execute(change, {"n": 3, "new": "third"})
        return text

    assert await database.run(work) == "second"
    assert waits == [3, 2]
    assert await database.run(lambda connection: connection.execute(read, {"n": 3}).scalar()) == "third"


async def test_a_result_may_be_read_after_later_statements(database: PostgresDatabase, waits: list[int]) -> None:
    def work(connection: sa.Connection) -> tuple[int, object, object]:
        changed = connection.execute(change, {"n": 1, "new": "third"})
        before = connection.execute(read, {"n": 1})
        connection.execute(change, {"n": 1, "new": "fourth"})
        after = connection.execute(read, {"n": 1})
        return changed.rowcount, before.scalar(), after.scalar()

    assert await database.run(work) == (1, "third", "fourth")
    assert waits == [4, 1]


async def test_a_statement_that_fails_unread_fails_its_transaction(database: PostgresDatabase) -> None:
    def work(connection: sa.Connection) -> None:
        connection.execute(change, {"n": 1, "new": "lost"})
        connection.execute(add, {"id": 1, "text": "again"})
        connection.execute(change, {"n": 2, "new": "lost"})

    with pytest.raises(sa.exc.IntegrityError, match="duplicate key"):
        await database.run(work)
    with pytest.raises(sa.exc.IntegrityError, match="null value"):
        await database.run(lambda connection: connection.execute(change, {"n": 1, "new": None}).rowcount)
    found = await database.run(lambda c: [c.execute(read, {"n": n}).scalar() for n in (1, 2)])
    assert found == ["second", "second"]


async def test_a_prepared_statement_whose_table_is_changed_is_prepared_anew(
    database: PostgresDatabase, address: str
) -> None:
    assert await database.run(lambda connection: connection.execute(read, {"n": 1}).scalar()) == "second"
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("alter table notes alter column text type text")
    assert await database.run(lambda connection: connection.execute(read, {"n": 1}).scalar()) == "second"


async def test_a_value_that_cannot_be_sent_fails_its_transaction_alone(database: PostgresDatabase) -> None:
    with pytest.raises(DatabaseError, match="NUL"):
        await database.run(lambda connection: connection.execute(change, {"n": 1, "new": "\0"}).rowcount)
    assert await database.run(lambda connection: connection.execute(read, {"n": 1}).scalar()) == "second"


async def test_a_statement_is_prepared_once_for_a_session(database: PostgresDatabase) -> None:
    for _ in range(3):
        await database.run(lambda connection: connection.execute(count_prepared).scalar())
    counts = [await database.run(lambda connection: connection.execute(count_prepared).scalar()) for _ in range(2)]
    assert counts == [4, 4]


async def test_behind_a_pooler_nothing_is_prepared(address: str) -> None:
    async with pooled(address) as pooler, opened(pooler) as database:
        assert await database.run(lambda c: write_and_read(c, 3)) == "second"
        assert await database.run(lambda c: c.execute(count_prepared).scalar()) == 0


@asynccontextmanager
async def pooled(address: str) -> AsyncIterator[str]:
    """Yield the address of a proxy that gives its clients a key of its own to cancel with, as poolers do."""
    parts = psycopg.conninfo.conninfo_to_dict(address)
    path = Path(str(parts["host"])) / ".s.PGSQL.5432"
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            head, key, rest = data.partition(b"K\0\0\0\x0c")
            writer.write(head + key + (b"\0\0\0\x01" + rest[4:] if key else b""))
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(path)
        tasks.add(asyncio.create_task(pump(reader, server_writer)))
        tasks.add(asyncio.create_task(pump(server_reader, writer)))

    server = await asyncio.start_server(serve, "127.0.0.1")
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}/{parts['dbname']}"
    await asyncio.gather(*tasks)
