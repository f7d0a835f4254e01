"""Files of a database: the lock of the one process that claims turns on a SQLite file, and a file made durable."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from bot.errors import DatabaseHeld


class LockFile:
    """An exclusive lock on `<database>.lock`, which holds a line about its owner."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + ".lock")
        self._file: IO[str] | None = None

    def acquire(self, purpose: str) -> None:
        """Acquire the lock. Raises DatabaseHeld, which names the owner."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                raise DatabaseHeld(
                    f"The database {self._database} is in use by {_holder(file)}.",
                    "close it first, read a conversation with --conversation ID, "
                    "or use another database: DATABASE_URL=sqlite:///other.db",
                ) from None
        file.truncate()
        json.dump({"pid": os.getpid(), "purpose": purpose, "since": time.time()}, file)
        file.flush()
        self._file = file

    def release(self) -> None:
        """Release the lock. No effect if it is not held."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _holder(file: IO[str]) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        owner = json.load(file)
        since = time.strftime("%H:%M", time.localtime(owner["since"]))
        return f"process {owner['pid']} ({owner['purpose']}, since {since})"
    return "another process"


def fsync_directory(folder: Path) -> None:
    """Flush a directory's entries to disk, because fsync of a file does not include its name. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
