from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from bot.errors import DatabaseError
from bot.storage import schema
from bot.storage.database import open_sqlite
from bot.storage.tables import metadata


async def test_the_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    database = open_sqlite(f"sqlite:///{tmp_path / 'a.db'}")
    await schema.upgrade(database)

    def differences(connection: sa.Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata))

    assert await database.run_once(differences) == []
    assert await schema.current(database) == schema.head()
    await database.close()


async def test_upgrading_twice_does_no_harm(tmp_path: Path) -> None:
    database = open_sqlite(f"sqlite:///{tmp_path / 'a.db'}")
    await schema.upgrade(database)
    await schema.upgrade(database)
    assert await schema.current(database) == schema.head()
    await database.close()


async def test_a_database_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    database = open_sqlite(f"sqlite:///{tmp_path / 'a.db'}")
    await schema.upgrade(database)
    later = sa.text("update alembic_version set version_num = '9999'")
    await database.run(lambda connection: connection.execute(later))
    with pytest.raises(DatabaseError, match="which a later release made"):
        await schema.upgrade(database)
    await database.close()


async def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    file.write_text("these are my notes, not a database " * 40)
    with pytest.raises(DatabaseError, match="cannot be opened"):
        open_sqlite(f"sqlite:///{file}")
    assert file.read_text().startswith("these are my notes")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "postgresql://localhost/x"])
def test_an_address_this_release_cannot_use_is_refused_with_the_fix(url: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        open_sqlite(url)
    assert caught.value.fix == "use sqlite:///path/to/file.db"


async def test_the_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    database = open_sqlite(f"sqlite:///{tmp_path / 'data' / 'a.db'}")
    await schema.upgrade(database)
    await database.close()
    assert (tmp_path / "data" / "a.db").stat().st_mode & 0o777 == 0o600
