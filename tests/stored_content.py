"""Search for a text in the columns and in the files of a database."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from bot.storage.database import Database


async def columns_with(database: Database, marker: str) -> list[str]:
    """Return the columns of all tables with the marker in any row, as `table.column`."""

    def search(connection: sa.Connection) -> list[str]:
        inspector = sa.inspect(connection)
        hits = []
        for table in inspector.get_table_names():
            rows = connection.exec_driver_sql(f'select * from "{table}"').mappings().all()
            names = {
                f"{table}.{name}" for row in rows for name, value in row.items() if marker.encode() in _bytes_of(value)
            }
            hits += sorted(names)
        return sorted(hits)

    return await database.run(search)


def files_with(database: Path, marker: str) -> list[str]:
    """Return the files of a SQLite database that contain the marker."""
    files = sorted(database.parent.glob(f"{database.name}*"))
    return [file.name for file in files if file.is_file() and marker.encode() in file.read_bytes()]


def _bytes_of(value: object) -> bytes:
    match value:
        case bytes() | memoryview():
            return bytes(value)
        case _:
            return str(value).encode(errors="replace")
