"""The lines typed before, for the arrow keys and Ctrl-R, in a file that only its owner can read.

Called by the screen. Lines that look like they hold a secret stay in memory and are not written.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit.history import History

from bot.commands.token_detection import looks_like_token
from bot.domain.secret_detection import looks_like_secret

KEPT = 1000
_REFERENCES = re.compile(
    r"(?:^\s*/mcp\s+secret\s+(?:set|rotate)\s+\S+\s+\S+\s+|--secret[\s=]+|--(?:header|env)[\s=]+[^\s=]+=)[\"']?(\S+)",
    re.IGNORECASE,
)


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
        if self._path is None or looks_like_secret(string) or looks_like_token(string) or _misplaced(string):
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(json.dumps(string) + "\n")
        except OSError:
            self._path = None


def _misplaced(line: str) -> bool:
    """Something stands where a reference to a secret belongs, and is none: it may be the secret itself."""
    return any(not re.match(r"(env|file):", match[1]) for match in _REFERENCES.finditer(line))


def _read(written: str) -> str:
    try:
        line = json.loads(written)
    except ValueError:
        return ""
    return line if isinstance(line, str) else ""
