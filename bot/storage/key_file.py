"""Encryption key generated for SQLite if the operator has set none: a file beside the database, readable by its owner
only.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from bot.errors import SettingsError
from bot.storage.fsync import fsync_directory
from bot.storage.secret_box import generate_key, read_keys


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key in the format of MCP_ENCRYPTION_KEY, its file, and True if it was created now."""

    text: str
    path: Path
    new: bool

    def __repr__(self) -> str:
        return f"KeptKey({self.path}, new={self.new})"


def load_or_create_key(database: Path) -> KeyFile:
    """Return the key beside a database file, created if missing. Concurrent processes get the same key. Reads and
    writes files. Raises SettingsError if the key is invalid or cannot be stored.
    """
    path = key_path(database)
    try:
        new = not path.exists() and _make(path)
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The encryption key {path} cannot be stored: {getattr(error, 'strerror', None) or 'it is not text'}.",
            "check the file and its folder, or set MCP_ENCRYPTION_KEY",
        ) from error
    if not read_keys(text, f"The file {path}"):
        raise SettingsError(f"The file {path} is empty.", "restore it from a backup, or delete it to get a new key")
    return KeyFile(text, path, new)


def key_path(database: Path) -> Path:
    """Return the path of the key beside a database file."""
    return database.with_name(database.name + ".key")


def _make(path: Path) -> bool:
    """Write the file atomically unless it exists. Return True if it was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(generate_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link fails if the target exists.
            os.link(draft, path)
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    # Encrypted values must not outlive their key.
    fsync_directory(path.parent)
    return True
