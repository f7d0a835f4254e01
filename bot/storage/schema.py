"""Bringing a database to this release's schema.

Alembic costs half a second to load, so it is loaded only when there is something to migrate.
"""

from __future__ import annotations

import logging
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError as SqlDatabaseError

from bot.errors import DatabaseError
from bot.storage.database import Database, first_line

_LOCK = 0x436F756F
_MIGRATIONS = Path(__file__).with_name("migrations")


async def upgrade(database: Database) -> None:
    """Apply what is missing. Raises DatabaseError if the database belongs to a later release or cannot be changed."""
    found = await current(database)
    if found == head():
        return
    if found is not None and found not in known():
        raise DatabaseError(
            f"The database {database.name} has schema {found}, which a later release made; this one knows {head()}.",
            "run that release, or use another database with DATABASE_URL",
        )
    try:
        await database.run_once(_upgrade)
    except SqlDatabaseError as error:
        reason = first_line(error.orig)
        raise DatabaseError(
            f"The database {database.name} cannot be brought to schema {head()}: {reason}.",
            "see that its owner does it and that nothing else holds its tables, a backup for instance, and try again",
        ) from error


async def current(database: Database) -> str | None:
    """The schema revision a database has, None if it is empty. Raises DatabaseError if it is no database."""
    try:
        return await database.run_once(_current)
    except SqlDatabaseError as error:
        reason = first_line(getattr(error, "orig", error))
        raise DatabaseError(f"The database {database.name} cannot be read: {reason}.", database.fix(reason)) from error


def head() -> str:
    """The schema revision of this release."""
    return known()[-1]


def known() -> list[str]:
    """The revisions this release can come from, oldest first: the numbers that the migrations' names begin with."""
    return sorted(path.name.split("_")[0] for path in (_MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("select version_num from alembic_version")).scalar()
    return revision


def _upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Many processes may start at once: one migrates, the others find it done.
        connection.execute(sa.text(f"select pg_advisory_xact_lock({_LOCK})"))
        if _current(connection) == head():
            return
    from alembic import command  # noqa: PLC0415 - see the module's docstring
    from alembic.config import Config  # noqa: PLC0415

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
