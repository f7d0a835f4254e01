"""Online copy of a SQLite database.

SQLite copies a WAL database within one read transaction: the copy holds everything committed before its start, and
writers do not wait (https://www.sqlite.org/backup.html). PostgreSQL is backed up with its own tools.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from bot.domain.audit import AuditHead
from bot.errors import DatabaseError
from bot.storage.lock_file import fsync_directory

_BUSY_SECONDS = 30.0
"""Seconds to wait for a program that locks the whole file."""


def back_up(database: Path, target: Path) -> AuditHead:
    """Copy a database file, and return the last audit row in the copy. The target appears atomically, is readable by
    its owner only, and replaces no file.

    Raises DatabaseError if the database is missing, the target exists, or the copy fails or is damaged.
    """
    if not database.is_file():
        raise DatabaseError(f"There is no database at {database}.", "check DATABASE_URL and the working folder")
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    reserved = False
    try:
        # Reserved first, so that a file created meanwhile is not overwritten.
        _make(target)
        reserved = True
        _make(draft)
        head = _copy(database, draft)
        draft.replace(target)
        reserved = False
        fsync_directory(target.parent)
    except FileExistsError:
        raise DatabaseError(f"{target} already exists, and a backup overwrites no file.", "give another name") from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DatabaseError(
            f"The database {database} cannot be copied to {target}: {reason}.",
            "check the folder, its permissions, and the room on its disk",
        ) from error
    finally:
        for leftover in (draft, *([target] if reserved else [])):
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)
    return head


def _make(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _copy(database: Path, draft: Path) -> AuditHead:
    """Copy all pages at once and check them. Return the last audit row."""
    source_uri = f"{database.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(source_uri, uri=True, timeout=_BUSY_SECONDS)) as source,
        closing(sqlite3.connect(draft, isolation_level=None)) as copy,
    ):
        source.backup(copy)
        # One file, because its folder may be read-only later.
        copy.execute("pragma journal_mode=delete")
        (check_result,) = copy.execute("pragma quick_check(1)").fetchone()
        if check_result != "ok":
            raise DatabaseError(
                f"The database {database} is damaged: {str(check_result).splitlines()[0]}.",
                "keep the file, and go back to the last backup that was whole",
            )
        head = _head(copy)
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    return head


def _head(copy: sqlite3.Connection) -> AuditHead:
    if copy.execute("select 1 from sqlite_master where type = 'table' and name = 'audit'").fetchone() is None:
        return AuditHead()
    row = copy.execute("select seq, hash from audit order by seq desc limit 1").fetchone()
    return AuditHead(*row) if row else AuditHead()
