"""Opening of the database in DATABASE_URL, and its migration to this release's schema.

Only its own driver is imported, and Alembic only if there is a schema to migrate.
"""

from __future__ import annotations

import logging
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError as SqlDatabaseError

from bot.errors import DatabaseError
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.database import Database, first_line
from bot.storage.schema import create_schema, note_revision

_LOCK = 0x436F756F
_MIGRATIONS = Path(__file__).with_name("migrations")


def open_database(url: str) -> Database:
    """Return the database of an address, with the schema that it has. Raises DatabaseError."""
    match read_address(url):
        case SqliteFile(path):
            from bot.storage.sqlite import open_sqlite  # noqa: PLC0415 - see the module's docstring

            return open_sqlite(path)
        case PostgresServer() as server:
            from bot.storage.postgresql import PostgresDatabase  # noqa: PLC0415 - see the module's docstring

            return PostgresDatabase(server)


async def upgrade(database: Database) -> None:
    """Apply the missing migrations. Raises DatabaseError if the database is of a later release or cannot be changed."""
    stored = await current_revision(database)
    if stored == latest_revision():
        return
    check_known(database, stored)
    try:
        await database.run_once(_upgrade)
    except SqlDatabaseError as error:
        reason = first_line(error.orig)
        raise DatabaseError(
            f"The database {database.name} cannot be migrated to schema {latest_revision()}: {reason}.",
            "see that its owner does it and that nothing else holds its tables, a backup for instance, and try again",
        ) from error


def check_known(database: Database, stored: str | None) -> None:
    """Raise DatabaseError if the schema is one of a later release, or older than those that this one can upgrade."""
    if stored is None or stored in known_revisions():
        return
    if stored < known_revisions()[0]:
        raise DatabaseError(
            f"The database {database.name} has schema {stored}, which this release cannot upgrade.",
            "keep it, export its audit with the release that made it (`countersign audit export > audit.jsonl`), and "
            "use another database with DATABASE_URL",
        )
    raise DatabaseError(
        f"The database {database.name} has schema {stored}, which a later release made; this one knows "
        f"{latest_revision()}.",
        "run that release, or use another database with DATABASE_URL",
    )


async def current_revision(database: Database) -> str | None:
    """Return the schema revision of a database, `None` if it is empty. Raises DatabaseError if the file is not a
    database.
    """
    try:
        return await database.run_once(_current)
    except SqlDatabaseError as error:
        reason = first_line(getattr(error, "orig", error))
        raise DatabaseError(f"The database {database.name} cannot be read: {reason}.", database.fix(reason)) from error


def latest_revision() -> str:
    """Return the schema revision of this release."""
    return known_revisions()[-1]


def known_revisions() -> list[str]:
    """Return the revisions that this release can upgrade, oldest first: the number prefixes of the migrations."""
    return sorted(path.name.split("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("select version_num from alembic_version")).scalar()
    return revision


def _upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Many processes may start at once: one migrates, and the others find the schema current.
        connection.execute(sa.text(f"select pg_advisory_xact_lock({_LOCK})"))
        if _current(connection) == latest_revision():
            return
    if not sa.inspect(connection).has_table("alembic_version"):
        create_schema(connection)
        note_revision(connection, latest_revision())
        return
    from alembic import command  # noqa: PLC0415 - see the module's docstring
    from alembic.config import Config  # noqa: PLC0415

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
