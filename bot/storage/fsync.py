"""What keeps a new file after a power loss. Called by whatever puts files beside a database."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_directory(folder: Path) -> None:
    """Have the names in a folder on disk, not only the files' contents. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
