"""A SQLite file with this release's schema. Each process migrates one file and copies it for its tests."""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bot.storage import migrate
from bot.storage.sqlite import open_sqlite
from tests import statement_cache  # noqa: F401 - its import has the effect


async def at_hand(path: Path) -> Path:
    """Create a migrated database at `path` unless the file exists."""
    return path if path.exists() else await create_database(path)  # noqa: ASYNC240 - no other task waits


async def create_database(path: Path) -> Path:
    """Create a migrated database at `path` without an open connection."""
    return copy_template(path)


def copy_template(path: Path) -> Path:
    """Create a migrated database at `path`, from synchronous code."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    shutil.copyfile(_template(), path)
    return path


@functools.cache
def _template() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="countersign-test-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "migrated.db"
    with ThreadPoolExecutor(1) as thread:  # the caller may run an event loop
        thread.submit(asyncio.run, _upgrade_database(path)).result()
    return path


async def _upgrade_database(path: Path) -> None:
    database = open_sqlite(path)
    await migrate.upgrade(database)
    await database.close()
