"""Durability of new files after a power loss."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_directory(folder: Path) -> None:
    """Flush a directory's entries to disk, because fsync of a file does not include its name. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
