"""A SQLite file with this release's schema: migrated once a process, copied after that. Most tests begin with one."""

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
from tests import statement_cache  # noqa: F401 - what it does, it does by being there


async def at_hand(path: Path) -> Path:
    """Put a migrated database there, unless there is one from before."""
    return path if path.exists() else await migrated(path)  # noqa: ASYNC240 - nobody else waits


async def migrated(path: Path) -> Path:
    """Put a migrated database there; nothing has it open."""
    return copied(path)


def copied(path: Path) -> Path:
    """The same for those who do not wait."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    shutil.copyfile(_template(), path)
    return path


@functools.cache
def _template() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="countersign-test-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "migrated.db"
    with ThreadPoolExecutor(1) as thread:  # whoever asks may have a loop of its own
        thread.submit(asyncio.run, _upgraded(path)).result()
    return path


async def _upgraded(path: Path) -> None:
    database = open_sqlite(path)
    await migrate.upgrade(database)
    await database.close()
