"""Notebook in one JSON file with atomic writes.

A write replaces the file by a new one under a lock file. A file that cannot be parsed is never overwritten.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from mcp_servers.notes.note import Note, Notebook, Refused

VERSION = 1
LOCK_PATIENCE = 5.0
"""Seconds to wait for another writer; one write takes milliseconds."""

LARGEST_FILE = 64 * 1024 * 1024
"""Maximum size in bytes, far above a notebook at its limits."""


class NotebookFile:
    """Notebook at one path. Its folder and the file are created with the first note."""

    def __init__(self, path: Path, *, lock_patience: float = LOCK_PATIENCE) -> None:
        self._path = path
        self._lock_patience = lock_patience

    def read(self) -> Notebook:
        """Return the current notebook; an empty one if there is no file. Raises Refused."""
        path = self._real_path()
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
        except FileNotFoundError:
            return Notebook()
        except OSError as error:
            raise Refused(f"The notes file {path} cannot be read ({error.strerror}). Check its permissions.") from error
        try:
            return _notebook(content)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Refused(
                f"The notes file {path} is damaged, so it was left as it is. "
                "Repair it, or move it away to begin with an empty one."
            ) from error

    def change(self, how: Callable[[Notebook], Notebook]) -> Notebook:
        """Replace the notebook by the result of `how`, under the lock. Raises Refused, and then leaves the file
        untouched.
        """
        path = self._real_path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _lock(path, self._lock_patience):
                changed = how(self.read())
                _replace(path, changed)
        except OSError as error:
            raise Refused(
                f"The notes file {path} cannot be written ({error.strerror}). "
                "Check the folder's permissions and the space on the disk, or set NOTES_FILE to another place."
            ) from error
        return changed

    def _real_path(self) -> Path:
        """Resolve a link, because a rename would replace the link itself."""
        return Path(os.path.realpath(self._path))


@contextlib.contextmanager
def _lock(path: Path, patience: float) -> Iterator[None]:
    """Hold the lock beside `path`, waiting at most `patience` seconds. The system releases it when the process
    ends. Raises Refused.
    """
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        ends = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= ends:
                    raise Refused(
                        f"Another process has been writing {path} for {patience:.0f} seconds. "
                        "Try again, and if this stays so end that process."
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, notebook: Notebook) -> None:
    """Write a temporary file and rename it. Its name is fixed, because the lock is held."""
    beside = path.with_name(path.name + ".new")
    text = json.dumps(_document(notebook), ensure_ascii=False, indent=1) + "\n"
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _document(notebook: Notebook) -> dict[str, Any]:
    notes = [{"id": note.id, "text": note.text, "created_at": note.created_at.isoformat()} for note in notebook.notes]
    return {"version": VERSION, "next_id": notebook.next_id, "notes": notes}


def _notebook(content: bytes) -> Notebook:
    """Parse a file strictly, because unknown content would be lost by the next write. Raises ValueError, TypeError,
    KeyError or RecursionError.
    """
    if len(content) > LARGEST_FILE:
        raise ValueError("it is too large")
    value = json.loads(content)
    if value["version"] != VERSION:
        raise ValueError("it has another version")
    notes = tuple(_note(item) for item in value["notes"])
    ids = [note.id for note in notes]
    next_id = _whole_number(value["next_id"])
    if ids != sorted(set(ids)) or (ids and (ids[0] < 1 or ids[-1] >= next_id)):
        raise ValueError("its ids are not in order")
    return Notebook(notes, next_id)


def _note(value: Any) -> Note:
    created_at = datetime.fromisoformat(value["created_at"])
    if not isinstance(value["text"], str) or created_at.tzinfo is None:
        raise ValueError("a note has no text or no time")
    return Note(_whole_number(value["id"]), value["text"], created_at)


def _whole_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a number is missing")
    return value
