"""Options, values and progress of a setup.

Values are settings, saved in `.env`. `Progress` has the rest: the name of the app, the channel of the first message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from bot.app.setup.env_file import update_env_file, write_private
from bot.errors import SettingsError
from bot.folders import find_folders
from bot.settings import Settings, read_environment, read_settings
from bot.storage.address import read_address

WORKSPACE = "workspace"
"""Value of `admin` for the platform's own admins."""


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """Options of `countersign setup`, without secrets, because others can read the command line of a process.

    `write` applies the steps that need no person. `redo` is the name of a step to repeat. `wait` is in seconds.
    """

    subject: str = ""
    print_only: bool = False
    write: bool = False
    stdin: bool = False
    as_json: bool = False
    redo: str = ""
    name: str = ""
    without: frozenset[str] = frozenset()
    http: str = ""
    server: str = ""
    channel: str = ""
    admin: str = ""
    approvers: tuple[str, ...] = field(default=())
    model: str = ""
    message: bool = True
    browser: bool = True
    wait: float = 180.0


def env_file() -> Path:
    """Return the `.env` that the setup writes."""
    return find_folders().env_file


class SetupValues:
    """Settings by name. `given` are the values of standard input, which are not saved yet."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given = {name: value.strip() for name, value in (given or {}).items() if value and value.strip()}

    def get(self, name: str) -> str:
        """Return a value; empty if it is not set."""
        return self.given.get(name) or read_environment().get(name, "").strip()

    def origin(self, name: str) -> str:
        """Return the source of a value for messages; empty if it is not set."""
        if name in self.given:
            return "standard input"
        if os.environ.get(name, "").strip():
            return "the environment"
        if (dotenv_values(env_file(), encoding="utf-8").get(name) or "").strip():
            return str(env_file())
        return "SETTINGS_FOLDER" if self.get(name) else ""

    def settings(self, **overrides: Any) -> Settings:
        """Return the settings with the values that are not saved yet. Raises SettingsError."""
        given = {name.lower(): value for name, value in self.given.items() if name.lower() in Settings.model_fields}
        return read_settings(**{**given, **overrides})

    def with_names(self, name: str, more: Sequence[str]) -> str:
        """Return a comma-separated setting with names added at its end."""
        present = [word.strip() for word in self.get(name).split(",") if word.strip()]
        return ",".join(dict.fromkeys([*present, *more]))

    def save(self, values: Mapping[str, str]) -> None:
        """Write values to `.env`. Raises SettingsError if the environment overrides one of them."""
        for name, value in values.items():
            if os.environ.get(name, "").strip() not in ("", value):
                raise SettingsError(
                    f"The environment sets {name}, which would win over {env_file()}.",
                    f"change it there, or run the setup without it: env -u {name} countersign setup",
                )
        changed = {
            name: value
            for name, value in values.items()
            if self.origin(name) != str(env_file()) or self.get(name) != value
        }
        if changed:
            update_env_file(env_file(), changed)
        for name in values:
            self.given.pop(name, None)


class Progress:
    """Results of a setup that are no settings and no secrets, in `setup.json` beside the database."""

    def __init__(self, settings: Settings, subject: str) -> None:
        self._path = read_address(settings.database_url).folder / "setup.json"
        self._subject = subject

    def get(self, name: str) -> str:
        """Return a saved value; empty if there is none."""
        return str(self._read().get(self._subject, {}).get(name, ""))

    def save(self, **values: str) -> None:
        """Save values; an empty one is removed. Raises SettingsError."""
        everything = self._read()
        own = {**everything.get(self._subject, {}), **values}
        everything[self._subject] = {name: value for name, value in own.items() if value}
        write_private(self._path, f"{json.dumps(everything, indent=2)}\n")

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            everything = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(everything, dict):
            return {}
        return {subject: own for subject, own in everything.items() if isinstance(own, dict)}
