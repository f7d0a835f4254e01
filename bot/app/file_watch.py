"""The operator's files on disk: their content, read again only if it may have changed.

A file is known by the digest of its content, so a save without a change, a rename and the swapped link of a Kubernetes
volume are told apart. Most checks only compare stamps.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

RACY_SECONDS = 2.0
"""Age of a change below which an equal stamp proves nothing: a second save within one tick of the clock leaves it as it
is. The coarsest file systems count in two seconds.
"""
LARGEST_BYTES = 16 * 1024 * 1024
"""Size of the largest file that is read: a larger one was not written for this program."""


class Unusable(Enum):
    """Why the content of a file is not read."""

    KIND = "not a regular file"
    SIZE = "too large"


@dataclass(frozen=True, slots=True)
class FileState:
    """One file: the digest of its content, empty if it is missing. `is_open_to_all` is True if every user of the
    machine may write to it. `owner` is the id of its owner. `unusable` says why its content is not read.
    """

    digest: str = ""
    size: int = 0
    is_open_to_all: bool = False
    unusable: Unusable | None = None
    owner: int = field(default=-1, compare=False)


MISSING = FileState()
FilesOnDisk = Mapping[Path, FileState]
"""States of all files at one moment."""


def changed_paths(before: FilesOnDisk, after: FilesOnDisk) -> list[Path]:
    """Return the files with another content, in order."""
    paths = sorted(before.keys() | after.keys())
    return [path for path in paths if before.get(path, MISSING).digest != after.get(path, MISSING).digest]


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: tuple[int, ...]
    state: FileState
    is_certain: bool


class FileWatch:
    """Watch of files. `paths` returns those of now. `clock` is in epoch seconds, like the times of files. Use it in one
    thread at a time.
    """

    def __init__(self, paths: Callable[[], Iterable[Path]], *, clock: Callable[[], float] = time.time) -> None:
        self._paths = paths
        self._clock = clock
        self._known: dict[Path, _Known] = {}

    def look(self) -> FilesOnDisk:
        """Return the state of every file. Never raises: an unreadable file has a state of its own."""
        return {path: self._state(path) for path in self._paths()}

    def _state(self, path: Path) -> FileState:
        now = self._clock()
        try:
            status = path.stat()
            stamp = _stamp(status)
            known = self._known.get(path)
            if known is not None and known.is_certain and known.stamp == stamp:
                return known.state
            state = _read(path, status)
        except (FileNotFoundError, NotADirectoryError):
            self._known.pop(path, None)
            return MISSING
        except OSError as error:
            self._known.pop(path, None)
            return FileState(f"error {error.errno}")
        # The stamp is older than the content, so that a change between them is found by the next look.
        age = now - max(status.st_mtime, status.st_ctime)
        self._known[path] = _Known(stamp, state, age > RACY_SECONDS)
        return state


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def _read(path: Path, status: os.stat_result) -> FileState:
    if not stat.S_ISREG(status.st_mode):
        # Reading a pipe would wait, and take its content away.
        return FileState("not a regular file", unusable=Unusable.KIND)
    if status.st_size > LARGEST_BYTES:
        return FileState(f"{status.st_size} bytes", status.st_size, unusable=Unusable.SIZE)
    content = path.read_bytes()
    is_open_to_all = bool(status.st_mode & stat.S_IWOTH)
    return FileState(hashlib.sha256(content).hexdigest(), len(content), is_open_to_all, owner=status.st_uid)
