"""The database: its lock, opening, migration and backup."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.app.checkpoints import CheckpointWriter
from bot.app.secrets import audit_keys
from bot.errors import DatabaseError
from bot.settings import Settings
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.lock_file import LockFile

if TYPE_CHECKING:
    from bot.storage.backup import Backup
    from bot.storage.database import Database


@contextmanager
def lock_database(settings: Settings, purpose: str) -> Iterator[None]:
    """Lock a SQLite file for this process; PostgreSQL needs no lock. Raises DatabaseHeld if another process has the
    lock, DatabaseError if the folder cannot be used.
    """
    match read_address(settings.database_url):
        case SqliteFile(path):
            lock = LockFile(path)
            try:
                lock.acquire(purpose)
            except OSError as error:
                raise DatabaseError(
                    f"The folder {path.parent} cannot be used: {error.strerror}.", "check the folder and DATABASE_URL"
                ) from error
            try:
                yield
            finally:
                lock.release()
        case PostgresServer():
            yield


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database without a migration. Raises DatabaseError, and SettingsError if an audit key cannot be read."""
    keys = audit_keys(settings)
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.open_database")
    database: Database = await asyncio.to_thread(module.open_database, settings.database_url)
    database.audit_keys = keys
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def open_migrated_database(settings: Settings, *, migrate: bool) -> AsyncIterator[Database]:
    """Open the database with this release's schema. `migrate` upgrades an older schema; the caller holds the lock then.
    A checkpoint is written on closing if audit rows were added. Raises DatabaseError.
    """
    async with open_checkpointed_database(settings, migrate=migrate) as (database, _):
        yield database


@asynccontextmanager
async def open_checkpointed_database(
    settings: Settings, *, migrate: bool
) -> AsyncIterator[tuple[Database, CheckpointWriter]]:
    """Open the database as `open_migrated_database` does, and return the writer of its checkpoints too."""
    async with _checked_database(settings, migrate=migrate) as database:
        checkpoints = CheckpointWriter(settings, database)
        await checkpoints.begin()
        try:
            yield database, checkpoints
        finally:
            if database.audit_keys.used:
                await checkpoints.write()


@asynccontextmanager
async def open_database_read_only(settings: Settings) -> AsyncIterator[Database]:
    """Open a database with this release's schema for reading. No file is written, not even beside it. Raises
    DatabaseError.
    """
    async with _checked_database(settings, migrate=False) as database:
        yield database


@asynccontextmanager
async def _checked_database(settings: Settings, *, migrate: bool) -> AsyncIterator[Database]:
    schema = await _schema()
    async with open_database(settings) as database:
        if migrate:
            await schema.upgrade(database)
        elif (found := await schema.current(database)) != schema.head():
            raise DatabaseError(
                f"The database {database.name} has schema {found or 'none'}, and this release works on "
                f"{schema.head()}.",
                "run `countersign db upgrade`",
            )
        yield database


async def upgrade(settings: Settings) -> str:
    """Upgrade the database to this release's schema. Return the revision. Raises DatabaseError."""
    schema = await _schema()
    with lock_database(settings, "countersign db upgrade"):
        async with open_migrated_database(settings, migrate=True):
            return str(schema.head())


async def current(settings: Settings) -> tuple[str, str]:
    """Return the schema revision of the database, empty if there is none, and that of this release. Raises
    DatabaseError.
    """
    schema = await _schema()
    address = read_address(settings.database_url)
    if isinstance(address, SqliteFile) and not address.path.exists():
        return "", schema.head()
    async with open_database(settings) as database:
        return await schema.current(database) or "", schema.head()


async def back_up(settings: Settings, target: Path) -> Backup:
    """Copy the database to a file while other processes use it. Raises DatabaseError; for PostgreSQL it names the
    backup command.
    """
    match read_address(settings.database_url):
        case SqliteFile(path):
            module = await asyncio.to_thread(importlib.import_module, "bot.storage.backup")
            made: Backup = await asyncio.to_thread(module.back_up, path, target)
            return made
        case PostgresServer() as server:
            raise DatabaseError(
                f"The database {server.name} is on a server, which has tools of its own for that.",
                f'run `pg_dump --format=custom --file={target} "$DATABASE_URL"`, and then `countersign audit head`',
            )


async def _schema() -> Any:
    return await asyncio.to_thread(importlib.import_module, "bot.storage.schema")
