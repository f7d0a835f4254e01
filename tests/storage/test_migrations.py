from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from bot.errors import DatabaseError
from bot.storage import migrate
from bot.storage.address import SqliteFile, read_address
from bot.storage.database import Database
from bot.storage.migrate import open_database
from bot.storage.tables import metadata
from tests.postgres import Server


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Yield an empty database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'a.db'}"
    else:
        postgres: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
        url = await asyncio.to_thread(postgres.empty)
    database = open_database(url)
    yield database
    await database.close()


@pytest.mark.parametrize("by", ["at once", "migrations"])
async def test_an_empty_database_gets_the_tables_that_the_code_uses(empty: Database, by: str) -> None:
    if by == "migrations":  # which a database without a table of revisions does not need
        await empty.run_once(
            lambda connection: connection.exec_driver_sql("create table alembic_version (version_num varchar(32))")
        )
    await migrate.upgrade(empty)

    def differences(connection: sa.Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))

    assert await empty.run_once(differences) == []
    assert await migrate.current_revision(empty) == migrate.latest_revision()


async def test_an_empty_database_gets_what_the_migrations_make(tmp_path: Path) -> None:
    made = []
    for name in ("at once", "migrations"):
        database = open_database(f"sqlite:///{tmp_path / name}.db")
        if name == "migrations":
            await database.run_once(
                lambda connection: connection.exec_driver_sql(
                    "create table alembic_version (version_num varchar(32) not null constraint alembic_version_pkc "
                    "primary key)"
                )
            )
        await migrate.upgrade(database)
        listing = sa.text("select type, name, tbl_name, sql from sqlite_master order by type, name")
        made.append(await database.run(lambda connection: [tuple(row) for row in connection.execute(listing)]))  # noqa: B023
        await database.close()
    at_once, by_migrations = made
    assert at_once == by_migrations


async def test_many_processes_may_upgrade_at_once(empty: Database) -> None:
    await asyncio.gather(*(migrate.upgrade(empty) for _ in range(4)))
    await migrate.upgrade(empty)
    assert await migrate.current_revision(empty) == migrate.latest_revision()


async def test_an_upgrade_that_an_object_blocks_names_it_and_can_be_done_later(
    request: pytest.FixtureRequest,
) -> None:
    postgres: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    address = await asyncio.to_thread(postgres.empty)
    database = open_database(f"{address}&options=-c%20lock_timeout%3D100")
    with psycopg.connect(address) as backup:
        backup.execute("create table alembic_version (version_num varchar(32))")
        with pytest.raises(
            DatabaseError, match=f"cannot be migrated to schema {migrate.latest_revision()}: .* lock timeout"
        ):
            await migrate.upgrade(database)
    await migrate.upgrade(database)
    assert await migrate.current_revision(database) == migrate.latest_revision()
    await database.close()


async def test_a_database_of_a_later_release_is_left_alone(empty: Database) -> None:
    await migrate.upgrade(empty)
    later = sa.text("update alembic_version set version_num = '9999'")
    await empty.run(lambda connection: connection.execute(later))
    with pytest.raises(DatabaseError, match="which a later release made"):
        await migrate.upgrade(empty)


async def test_a_database_older_than_the_first_migration_is_left_alone_and_its_export_is_named(empty: Database) -> None:
    await migrate.upgrade(empty)
    earlier = sa.text("update alembic_version set version_num = '0008'")
    await empty.run(lambda connection: connection.execute(earlier))
    with pytest.raises(DatabaseError, match="has schema 0008, which this release cannot upgrade") as caught:
        await migrate.upgrade(empty)
    assert "countersign audit export" in caught.value.fix


async def test_every_migration_can_be_taken_back(empty: Database) -> None:
    await migrate.upgrade(empty)

    def down(connection: sa.Connection) -> list[str]:
        config = Config()
        config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        return sa.inspect(connection).get_table_names()

    assert await empty.run_once(down) == ["alembic_version"]
    await migrate.upgrade(empty)


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_text("these are my notes, not a database " * 40)
    with pytest.raises(DatabaseError, match="cannot be opened"):
        open_database(f"sqlite:///{file}")
    assert file.read_text().startswith("these are my notes")


def test_a_question_mark_in_the_address_of_a_file_is_refused_and_its_spelling_is_read(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/a.db?mode=ro", f"sqlite:///{tmp_path}/what?.db", "sqlite:///a?"):
        with pytest.raises(DatabaseError, match=r"has a \?") as caught:
            read_address(url)
        assert "%3F" in caught.value.fix
    assert read_address("sqlite:///what%3F.db") == SqliteFile(Path("what?.db"))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///a%00.db", "mysql://user:secret@host/x"])
def test_an_address_this_release_cannot_use_is_refused_with_the_fix(url: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        open_database(url)
    assert caught.value.fix == "use sqlite:///path/to/file.db or postgresql://user:password@host/database"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "rest",
    [
        "user:hunt/er2@host/x",
        "user:hunt@er2@host/x",
        "user:hunt#er2@host/x",
        "user:hunt?er2@host/x",
        "user:hunt%er2@host/x",
        "user:hunter2@host:port/x",
        "user:hunter2@one,two/x",
        "user:hunter2@[::1/x",
    ],
)
def test_an_address_that_can_be_read_in_two_ways_is_refused_without_a_piece_of_its_password(rest: str) -> None:
    with pytest.raises(DatabaseError, match="not the address of one server") as caught:
        open_database(f"postgresql://{rest}")
    assert "hunt" not in str(caught.value)
    assert "er2" not in str(caught.value)


async def test_the_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'data' / 'a.db'}")
    await migrate.upgrade(database)
    await database.close()
    assert (tmp_path / "data" / "a.db").stat().st_mode & 0o777 == 0o600
