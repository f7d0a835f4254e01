"""Secrets from outside the database: environment variables, and files written by a secret manager.

The module loads no library of the database, because every command reads it at its start.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import BinaryIO

from bot.errors import SecretUnavailable

LARGEST_BYTES = 64 * 1024


def from_environment(name: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable. Raises SecretUnavailable if it is missing or empty."""
    value = environment.get(name, "")
    if not value:
        raise SecretUnavailable(
            f"The variable {name} is not set, or is none that servers may refer to.",
            f"set {name} where the bot is started, under a name that MCP_SECRET_VARIABLES lets servers use",
        )
    return value


def from_file(path: str, file: BinaryIO) -> str:
    """Return the text of a file without trailing line ends. `path` is the file's name in errors. Raises
    SecretUnavailable.
    """
    try:
        data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(data) > LARGEST_BYTES:
        raise SecretUnavailable(f"The file {path} is larger than 64 KiB.", "name a file that holds the secret alone")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"The file {path} is not text.", "name a file that holds the secret alone") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SecretUnavailable(f"The file {path} is empty.", "write the secret into it")
    return text


def open_regular_file(path: str) -> BinaryIO:
    """Open a regular file. Raises SecretUnavailable for others, because pipes and devices may never end."""
    try:
        # Opening a pipe without a writer must not block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SecretUnavailable(f"The file {path} is not a regular file.", "name a file that holds the secret alone")
    return os.fdopen(handle, "rb")


def _unreadable(path: str, error: Exception) -> SecretUnavailable:
    reason = getattr(error, "strerror", None) or "its name cannot be used"
    return SecretUnavailable(
        f"The file {path} cannot be read: {reason}.", "see that it is there and that the bot may read it"
    )
