"""What the environment may decide: which folder is searched, and where its index is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SAMPLE = Path(__file__).parent / "sample"
"""The folder that is searched when none is named."""


class InvalidSetting(Exception):
    """A variable has a value that cannot be used; the message names it, the value and what would do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`database` is the index's file; None keeps the index in memory, to be made anew at every start."""

    folder: Path = SAMPLE
    database: Path | None = None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read `KNOWLEDGE_FOLDER` and `KNOWLEDGE_DATABASE`; unset and empty mean the default. Raises InvalidSetting."""
    named = environment.get("KNOWLEDGE_FOLDER", "").strip()
    folder = _path("KNOWLEDGE_FOLDER", named) if named else SAMPLE
    if not folder.is_dir():
        raise InvalidSetting(
            f"KNOWLEDGE_FOLDER is {named[:200]!r}, which is no folder here; "
            "create it, name another one, or unset it for the bundled sample."
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InvalidSetting(f"KNOWLEDGE_FOLDER is {named[:200]!r}, which may not be read; check its permissions.")
    kept = environment.get("KNOWLEDGE_DATABASE", "").strip()
    database = _path("KNOWLEDGE_DATABASE", kept) if kept else None
    if database is not None and database.is_dir():
        raise InvalidSetting(
            f"KNOWLEDGE_DATABASE is {kept[:200]!r}, which is a folder; "
            "name a file in it, such as knowledge.db, or unset it to keep the index in memory."
        )
    return Settings(folder, database)


def _path(name: str, value: str) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise InvalidSetting(
            f"{name} is {value[:200]!r}, which begins with a home folder that is not known here; give the whole path."
        ) from None
