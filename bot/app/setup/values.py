"""Options, values and progress of a setup.

Values are settings, saved in `.env`. `Progress` has the rest: the name of the app, the channel of the first message.

Of `.env` single values change. The file is replaced in one step and readable by its owner alone. Through a symbolic
link its target is replaced, if it belongs to the user: the link of another user gets no secrets.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from bot.errors import SettingsError
from bot.folders import find_folders
from bot.settings import Settings, read_environment, read_settings
from bot.storage.address import read_address

WORKSPACE = "workspace"
"""Value of `admin` for the platform's own admins."""
_MODE = 0o600
_PLAIN = re.compile(r"[\w.:/@,+=%~*-]+", re.ASCII)
_ASSIGNMENT = re.compile(
    r"(?P<head>\s*(?:export[^\S\r\n]+)?(?:'[^']+'|[^=#\s]+)[^\S\r\n]*=[^\S\r\n]*)(?P<rest>.*)", re.DOTALL
)
_VALUE = re.compile(
    r"""(?P<value>'(?:\\'|[^'])*'|"(?:\\"|[^"])*"|[^\r\n]*?)(?P<tail>(?:[^\S\r\n]+\#[^\r\n]*)?[^\S\r\n]*(?:\r?\n|\r)?)\Z"""
)


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """Options of `countersign setup`, without secrets, because others can read the command line of a process.

    `redo` is the name of a step to repeat. `wait` is in seconds.
    """

    redo: str = ""
    name: str = ""
    without: frozenset[str] = frozenset()
    http: str = ""
    server: str = ""
    channel: str = ""
    admin: str = ""
    approvers: tuple[str, ...] = ()
    model: str = ""
    message: bool = True
    browser: bool = True
    wait: float = 180.0


def split_names(text: str) -> list[str]:
    """Return names with commas between."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


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
        return ",".join(dict.fromkeys([*split_names(self.get(name)), *more]))

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


def update_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Set variables in a file that may not exist yet. Raises SettingsError if it cannot be changed safely."""
    target = _target(path)
    text = _read(target)
    newline = "\r\n" if "\r\n" in text else "\n"
    for name, value in values.items():
        text = _set_value(text, name, _quote(name, value), newline)
    if {**dotenv_values(stream=StringIO(text), interpolate=False)}.items() < values.items():
        raise SettingsError(f"{path} could not be changed.", "add the variables by hand")
    write_private(target, text)


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner alone. Raises SettingsError."""
    temporary = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name.strip('.')}-")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), _MODE)
            if path.exists() and os.geteuid() == 0:  # root may set up what another user runs
                owner = path.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}.",
            "let your user write in its folder, or choose another folder",
        ) from error


def is_private(path: Path) -> bool:
    """Return True if only its owner may read the file, or if it is missing."""
    return not path.exists() or not stat.S_IMODE(path.stat().st_mode) & 0o077


def _target(path: Path) -> Path:
    """Return the file to replace: the path itself, or the target of a link. Raises SettingsError."""
    try:
        target = path.resolve(strict=True) if path.is_symlink() else path
        if not target.exists():
            return target
        status = target.stat()
    except (OSError, RuntimeError):
        raise SettingsError(f"{path} is a link to nothing.", "remove the link, or create the file behind it") from None
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"{path} is not a file.", "move it away")
    if path.is_symlink() and status.st_uid != os.geteuid():
        raise SettingsError(
            f"{path} is a link to a file of another user: no secret is written there.", "replace the link by a file"
        )
    return target


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read.", "save it as UTF-8 text that your user may read") from error


def _quote(name: str, value: str) -> str:
    if not value.isprintable() or "${" in value:
        raise SettingsError(f"The value for {name} has characters that .env cannot hold.", "copy it again")
    if not value or _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _set_value(text: str, name: str, value: str, newline: str) -> str:
    """Replace the last assignment of a name, in any case of letters: the one that python-dotenv reads."""
    bindings = list(parse_stream(StringIO(text, newline="")))
    at = next((n for n in reversed(range(len(bindings))) if (bindings[n].key or "").lower() == name.lower()), None)
    if at is None:
        start = f"{text}{newline}" if text and not text.endswith(("\n", "\r")) else text
        return f"{start}{name}={value}{newline}"
    parts = [binding.original.string for binding in bindings]
    assignment = _ASSIGNMENT.fullmatch(parts[at])
    if assignment is None:  # a name without a value
        parts[at] = f"{parts[at].rstrip()}={value}{newline}"
    else:
        rest = _VALUE.match(assignment["rest"])
        parts[at] = f"{assignment['head']}{value}{rest['tail'] if rest is not None else newline}"
    return "".join(parts)
