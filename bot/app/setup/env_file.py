"""Changes of single values in `.env`. The rest of the file stays as it is.

The file is replaced in one step and readable by its owner alone. Through a symbolic link its target is replaced, if it
belongs to the user: the link of another user gets no secrets.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import Binding, parse_stream

from bot.errors import SettingsError

_MODE = 0o600
_PLAIN = re.compile(r"[\w.:/@,+=%~*-]+", re.ASCII)
_ASSIGNMENT = re.compile(
    r"(?P<head>\s*(?:export[^\S\r\n]+)?(?:'[^']+'|[^=#\s]+)[^\S\r\n]*=[^\S\r\n]*)(?P<rest>.*)", re.DOTALL
)
_VALUE = re.compile(
    r"""(?P<value>'(?:\\'|[^'])*'|"(?:\\"|[^"])*"|[^\r\n]*?)(?P<tail>(?:[^\S\r\n]+\#[^\r\n]*)?[^\S\r\n]*(?:\r?\n|\r)?)\Z"""
)


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
        _sync_folder(path.parent)
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
    parts[at] = _replace_value(bindings[at], value, newline)
    return "".join(parts)


def _replace_value(binding: Binding, value: str, newline: str) -> str:
    original = binding.original.string
    assignment = _ASSIGNMENT.fullmatch(original)
    if assignment is None:  # a name without a value
        return f"{original.rstrip()}={value}{newline}"
    rest = _VALUE.match(assignment["rest"])
    tail = rest["tail"] if rest is not None else newline
    return f"{assignment['head']}{value}{tail}"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
