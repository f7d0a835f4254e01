"""Consent to the files of a working folder, once for each folder: a cloned repository may have files that start
programs and send questions elsewhere.

Only an installed program asks: running it from its source, or setting COUNTERSIGN_HOME, is a choice of the folder.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from bot.errors import SettingsError
from bot.folders import HOME_VARIABLE, Folders

_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700


def require_consent(folders: Folders) -> None:
    """Ask at the terminal for consent to the files of a working folder that was never used before. Raises SettingsError
    without consent, and without a terminal.
    """
    if not folders.own_files or _is_known(folders):
        return
    folder = Path.cwd()
    cause = f"{str(folder)!r} has files for Countersign that you have not used before: {', '.join(folders.own_files)}."
    fix = (
        f"if they are yours, run countersign there in a terminal and answer yes, or set {HOME_VARIABLE}=. ; "
        "if not, run it in another folder"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError(cause, fix)
    sys.stderr.write(
        f"countersign: {cause}\n"
        "They decide which programs start, who is asked before a call, and where questions are sent.\n"
        "Use them? Answer yes only if you trust whoever wrote them. [y/N] "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SettingsError("The files of this folder are not used.", "run countersign in another folder")
    remember(folders)


def remember(folders: Folders) -> None:
    """Note that the files of the working folder count. Without a place for the note, the question comes again."""
    if folders.memory is None:
        return
    with suppress(OSError):
        folders.memory.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        file = os.open(folders.memory, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            os.write(file, f"{_line_of_working_folder()}\n".encode())
        finally:
            os.close(file)


def _is_known(folders: Folders) -> bool:
    if folders.memory is None:
        return False
    try:
        return _line_of_working_folder() in folders.memory.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False


def _line_of_working_folder() -> str:
    return json.dumps(str(Path.cwd().resolve()))  # in ASCII, whatever bytes a name has
