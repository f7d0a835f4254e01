"""Folders of this installation (settings, the operator's files, data), and the command that its shell finds.

`find_folders()` returns those of this process. COUNTERSIGN_HOME decides; else the working folder, if the program runs
from its source or if the folder has files of Countersign; else the user's own folders, `~/.config/countersign` and
`~/.local/share/countersign`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path

HOME_VARIABLE = "COUNTERSIGN_HOME"
DEFAULTS = Path(__file__).with_name("defaults")
"""Operator's files that come with the program."""
DATABASE = "countersign.db"
NOTES = "notes.json"

_STARTING_FILES = ("mcp_servers.json", "policy.toml", "system_prompt.md")
"""Files without which the program would have no tools, no policies and no prompt."""
_FURTHER_FILES = ("allowed_commands.txt", "launch_templates.toml", "limits.toml", "prices.toml", "secret_grants.toml")
"""Files that an operator may add."""
_OWN_VARIABLE = re.compile(r"^\s*(?:export\s+)?(?:BOT_MODEL|MCP_[A-Z_]+|ADMIN_API_TOKEN)\s*=", re.MULTILINE)
"""Line of an `.env` that only this program has: others also have names such as DATABASE_URL."""
_MAX_ENV_BYTES = 1 << 20
_COMMAND = re.compile(
    r"(?<![\w/.-])countersign "
    r"((?:ask|audit|chat|config|connect|db|doctor|hook|receipt|run|secrets|servers|setup|tokens|usage)\b)"
)
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Folders:
    """Folder of the operator's files, folder of data, and `.env`, with the reason for this choice as a clause.

    `base` is the folder that relative paths in the operator's files begin in. `personal` is True for the user's own
    folders, which the first start fills. `own_files` are files because of which an installed program uses the
    working folder: another user may have put them there. `memory` is the file of the folders that its user agreed to.
    """

    base: Path
    config: Path
    data: Path
    env_file: Path
    reason: str
    personal: bool = False
    own_files: tuple[str, ...] = ()
    memory: Path | None = None

    @property
    def is_filled(self) -> bool:
        """False before the first start in the user's own folders."""
        return not self.personal or any((self.config / name).exists() for name in _STARTING_FILES)

    def operator_file(self, name: str) -> Path:
        """Return the path of an operator's file: the program's own one while the folder could not be filled."""
        is_default = name in _STARTING_FILES and not self.is_filled
        return (DEFAULTS if is_default else self.config) / name


def find_folders() -> Folders:
    """Return the folders of this process. They stay the same while its working folder does."""
    names = (HOME_VARIABLE, "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME")
    return _find_once(tuple((name, os.environ.get(name, "")) for name in names), Path.cwd())


@lru_cache(maxsize=16)
def _find_once(environment: tuple[tuple[str, str], ...], working_folder: Path) -> Folders:
    return choose_folders(dict(environment), working_folder, installed=_is_installed())


def choose_folders(environment: Mapping[str, str], working_folder: Path, *, installed: bool) -> Folders:
    """Choose the folders. `installed` is False for a program that runs from its source."""
    if named := environment.get(HOME_VARIABLE, "").strip():
        # As in a shell, the tilde of an unknown user stays.
        home = Path(os.path.normpath(working_folder / os.path.expanduser(named)))  # noqa: PTH111
        return _folders_below(home, working_folder, f"{HOME_VARIABLE} names {home}")
    if not installed:
        return _folders_below(working_folder, working_folder, "the program runs from its source, in the working folder")
    own_files = _own_files(working_folder)
    try:
        home = Path(environment.get("HOME", "") or Path.home())
    except RuntimeError:
        here = _folders_below(working_folder, working_folder, "this user has no home folder")
        return replace(here, own_files=own_files)
    data = _xdg_folder(environment, "XDG_DATA_HOME", home / ".local" / "share") / "countersign"
    memory = data / "folders.txt"
    if own_files:
        here = _folders_below(working_folder, working_folder, f"the working folder has {own_files[0]}")
        return replace(here, own_files=own_files, memory=memory)
    config = _xdg_folder(environment, "XDG_CONFIG_HOME", home / ".config") / "countersign"
    reason = f"the working folder ({working_folder}) has no config, data or .env of Countersign"
    if (working_folder / ".env").is_file():
        reason += "; its .env sets nothing that only Countersign has"
    return Folders(config, config, data, config / ".env", reason, personal=True, memory=memory)


def copy_defaults(folder: Path) -> list[Path]:
    """Copy the default files that a folder lacks. Return the copies. Raises OSError."""
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    sources = sorted(path for path in DEFAULTS.iterdir() if path.name not in _FURTHER_FILES)
    return [path for source in sources if (path := _copy(source, folder)) is not None]


def shell_command(words: str) -> str:
    """Return a command of this program as the user can type it: with the path of a clone's own environment, which no
    shell finds by name.
    """
    return f"{_program(sys.prefix, Path.cwd(), shutil.which('countersign'))} {words}"


def in_shell(text: str) -> str:
    """Return the text with its commands of this program as the user can type them."""
    return _COMMAND.sub(lambda command: shell_command(command[1]), str(text))


def _program(environment: str, working_folder: Path, on_path: str | None) -> str:
    own = Path(environment, "bin", "countersign")
    is_found = on_path is not None and Path(on_path).absolute() == own
    if is_found or not own.is_relative_to(working_folder) or not own.is_file():
        return "countersign"
    return str(own.relative_to(working_folder))


def _is_installed() -> bool:
    beside = metadata.distributions(name="countersign", path=[str(Path(__file__).parents[1])])
    # The `egg-info` of a clone has no METADATA.
    return any(distribution.read_text("METADATA") for distribution in beside)


def _folders_below(folder: Path, working_folder: Path, reason: str) -> Folders:
    # Paths in the working folder are short in messages.
    base = Path() if folder == working_folder else folder
    return Folders(base, base / "config", base / "data", base / ".env", reason)


def _own_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files of Countersign in a folder."""
    operator_files = (f"config/{name}" for name in (*_STARTING_FILES, *_FURTHER_FILES))
    names = (*operator_files, f"data/{DATABASE}", f"data/{NOTES}")
    own_files = [name for name in names if (folder / name).is_file()]
    with suppress(OSError), (folder / ".env").open("rb") as file:
        if _OWN_VARIABLE.search(file.read(_MAX_ENV_BYTES).decode(errors="replace")):
            own_files.append(".env")
    return tuple(own_files)


def _xdg_folder(environment: Mapping[str, str], name: str, default: Path) -> Path:
    path = Path(environment.get(name, ""))
    return path if path.is_absolute() else default


def _copy(source: Path, folder: Path) -> Path | None:
    """Copy a file whole or not at all. Return None if the name is taken."""
    path = folder / source.name
    if path.exists():
        return None
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{source.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file, source.open("rb") as original:
            shutil.copyfileobj(original, file)
        os.link(temporary, path)
    except FileExistsError:
        return None
    finally:
        Path(temporary).unlink()
    return path
