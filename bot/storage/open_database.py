"""Opening of the database in DATABASE_URL. Only its own driver is imported."""

from __future__ import annotations

from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.database import Database


def open_database(url: str) -> Database:
    """Return the database of an address. `schema.upgrade` applies its schema. Raises DatabaseError."""
    match read_address(url):
        case SqliteFile(path):
            from bot.storage.sqlite import open_sqlite  # noqa: PLC0415 - see the module's docstring

            return open_sqlite(path)
        case PostgresServer() as server:
            from bot.storage.postgresql import PostgresDatabase  # noqa: PLC0415 - see the module's docstring

            return PostgresDatabase(server)
