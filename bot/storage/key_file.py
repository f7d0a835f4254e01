"""The key that SQLite gets where the operator has set none: a file beside the database, for its owner's eyes alone."""

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
    """A key as MCP_ENCRYPTION_KEY takes it, the file it is in, and whether that was made just now."""

    text: str
    path: Path
    new: bool

    def __repr__(self) -> str:
        return f"KeptKey({self.path}, new={self.new})"


def load_or_create_key(database: Path) -> KeyFile:
    """The key beside a database file, made if there is none; of processes that make it at once all get the same one.
    Reads and writes files. Raises SettingsError if it cannot be kept, or is no key.
    """
    path = key_path(database)
    try:
        new = not path.exists() and _make(path)
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The encryption key {path} cannot be kept: {getattr(error, 'strerror', None) or 'it is no text'}.",
            "check the file and its folder, or set MCP_ENCRYPTION_KEY",
        ) from error
    if not read_keys(text, f"The file {path}"):
        raise SettingsError(f"The file {path} is empty.", "restore it from a backup, or delete it to get a new key")
    return KeyFile(text, path, new)


def key_path(database: Path) -> Path:
    """Return the path of the key beside a database file."""
    return database.with_name(database.name + ".key")


def _make(path: Path) -> bool:
    """Whether the file that is there now is ours. It appears whole or not at all, and replaces none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(generate_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a renaming, a link is refused where there is something already.
            os.link(draft, path)
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    # What is encrypted from now on must not outlive its key.
    fsync_directory(path.parent)
    return True
