"""A SQLite file with this release's schema: migrated once a process, copied after that. Most tests begin with one."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bot.storage import schema
from bot.storage.sqlite import open_sqlite

_folder: list[tempfile.TemporaryDirectory[str]] = []


async def at_hand(path: Path) -> Path:
    """Put a migrated database there, unless there is one from before."""
    return path if path.exists() else await migrated(path)  # noqa: ASYNC240 - nobody else waits


async def migrated(path: Path) -> Path:
    """Put a migrated database there; nothing has it open."""
    if not _folder:
        folder = tempfile.TemporaryDirectory(prefix="countersign-test-")
        database = open_sqlite(Path(folder.name) / "migrated.db")
        await schema.upgrade(database)
        await database.close()
        _folder.append(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(_folder[0].name) / "migrated.db", path)
    return path
