"""Programs of this machine that the operator has allowed as servers: those of a setting, and those of a file.

The file has one program a line, spelled as in a server's definition. The operator's terminal adds to it; a running bot
reads it again before it applies a change of servers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bot.errors import SettingsError
from bot.i18n import gettext_lazy

SETTING = "MCP_ALLOWED_COMMANDS_FILE"
_HEADING = (
    "# Programs that may run as MCP servers on this machine, one a line. `countersign servers add` adds to them.\n"
)
_LARGEST = 64 * 1024
_MODE = 0o644


class AllowedPrograms:
    """Container of the allowed programs. `listed` are those of the setting. Raises SettingsError if the file exists and
    cannot be read.
    """

    def __init__(self, listed: Iterable[str], path: Path) -> None:
        self._listed = frozenset(listed)
        self._path = path
        self._allowed = self._read()

    def __contains__(self, program: object) -> bool:
        return program in self._listed or program in self._allowed

    @property
    def allowed(self) -> frozenset[str]:
        """The programs of the file."""
        return self._allowed

    def check(self) -> None:
        """Raise SettingsError if the file cannot be used as it is now."""
        self._read()

    def refresh(self) -> None:
        """Read the file again. Raises SettingsError."""
        self._allowed = self._read()

    def allow(self, program: str) -> None:
        """Add a program to the file. Raises SettingsError."""
        if not program or program.startswith("#") or program != program.strip() or not program.isprintable():
            raise SettingsError(
                gettext_lazy("The name of this program cannot be written on a line."),
                gettext_lazy("start it by a name without odd characters"),
            )
        allowed = self._read()
        if program not in allowed:
            self._write([*sorted(allowed), program])
        self.refresh()

    def _read(self) -> frozenset[str]:
        try:
            with self._path.open(encoding="utf-8") as file:
                text = file.read(_LARGEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                gettext_lazy("{path} cannot be read: {error}.", path=self._path, error=str(error)),
                gettext_lazy("correct the file or {setting}", setting=SETTING),
            ) from error
        if len(text) > _LARGEST:
            raise SettingsError(
                gettext_lazy("{path} is too large.", path=self._path), gettext_lazy("write one program a line")
            )
        lines = (line.strip() for line in text.splitlines())
        return frozenset(line for line in lines if line and not line.startswith("#"))

    def _write(self, programs: Iterable[str]) -> None:
        """Replace the file at once, so that no reader sees half of it."""
        text = _HEADING + "".join(f"{program}\n" for program in programs)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                # The bot may run as another user than the operator's terminal, and the file holds no secret.
                Path(temporary).chmod(_MODE)
                Path(temporary).replace(self._path)
            except OSError:
                with suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            raise SettingsError(
                gettext_lazy("{path} cannot be written: {reason}.", path=self._path, reason=error.strerror),
                gettext_lazy(
                    "let it be written, or name the program in MCP_ALLOWED_COMMANDS; {setting} is another place",
                    setting=SETTING,
                ),
            ) from error
