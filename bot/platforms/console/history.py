"""The lines typed before, for the arrow keys and Ctrl-R, in a file that only its owner can read.

Called by the screen. Lines that look like they hold a secret stay in memory and are not written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

from bot.rendering.secrets import looks_secret

KEPT = 1000


class LineHistory(History):
    """One JSON string a line, oldest first. A file that cannot be read or written is a history that forgets."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """The lines of earlier sessions, newest first, as the library wants them."""
        if self._path is None:
            return []
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [line for written in reversed(text.splitlines()[-KEPT:]) if (line := _read(written))]

    def store_string(self, string: str) -> None:
        """Append a line, unless there is a secret in it."""
        if self._path is None or looks_secret(string):
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(string) + "\n")
        except OSError:
            self._path = None


def _read(written: str) -> str:
    try:
        line = json.loads(written)
    except ValueError:
        return ""
    return line if isinstance(line, str) else ""
