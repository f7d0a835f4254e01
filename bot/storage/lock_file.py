"""Processes that use one SQLite file at the same time, and a file made durable.

`<database>.lock` is locked by all of them together, or by one alone, which may change the schema. The folder
`<database>.processes` has a file for each, locked while it lives: its end is known at once, also after kill -9, in
other containers on the same machine too. An earlier release locks `<database>.lock` alone as long as it runs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bot.errors import DatabaseHeld

SETTLING_SECONDS = 1.0
"""Seconds after which a process that has locked the file has written its line."""
STARTING_SECONDS = 30.0
"""Longest wait for a process that creates or upgrades the schema."""
_PAUSE_SECONDS = 0.05
_NAME = re.compile(r"\d+-[0-9a-f]{8}")
"""Name of the file of a process: its id, and letters that no other has."""
_FIX = "close it first, or use another database: DATABASE_URL=sqlite:///other.db"
_EARLIER_FIX = "close it first: an earlier release uses the file alone"
_BOT_FIX = "end it first, or use PostgreSQL, on which several may run"


@dataclass(frozen=True, slots=True)
class Process:
    """A process that uses the file. `since` is in epoch seconds. `alone` is True while it works on the schema.
    `conversations` are the keys of its open conversations.
    """

    pid: int
    purpose: str
    since: float
    alone: bool = False
    conversations: Sequence[str] = ()

    def __str__(self) -> str:
        return f"process {self.pid} ({self.purpose}, since {time.strftime('%H:%M', time.localtime(self.since))})"

    @property
    def line(self) -> bytes:
        """The process as a line of a file."""
        facts = {"pid": self.pid, "purpose": self.purpose, "since": self.since, "alone": self.alone}
        return json.dumps({**facts, "conversations": self.conversations}).encode() + b"\n"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the process of the last complete line, None if there is none."""
        lines = text[: text.rfind("\n") + 1].splitlines() or [text]
        with contextlib.suppress(ValueError, KeyError, TypeError):
            facts = json.loads(lines[-1])
            conversations = tuple(map(str, facts.get("conversations", ())))
            return cls(
                int(facts["pid"]), str(facts["purpose"]), float(facts["since"]), bool(facts.get("alone")), conversations
            )
        return None


class FileUse:
    """The use of a SQLite file by this process. `name` is that of its claims. Methods may wait and belong in a thread
    once there is an event loop to block.
    """

    def __init__(self, database: Path, purpose: str) -> None:
        self._database = database
        self._folder = database.with_name(f"{database.name}.processes")
        token = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._file = self._folder / token
        self.name = f"{os.uname().nodename}:{token.replace('-', ':')}"
        self._this = Process(os.getpid(), purpose, time.time())
        self._locks: list[int] = []
        """Descriptors of `<database>.lock`, of the file of this process, and of `<database>.bot.lock`."""

    @property
    def is_alone(self) -> bool:
        """True while no other process uses the file and none can begin to."""
        return self._this.alone

    def begin(self, *, alone: bool = False) -> None:
        """Begin to use the file: alone if no other process does, until `share`, else beside the others, or not at all
        if `alone` is wanted. Waits for processes that start or upgrade. Raises DatabaseHeld and OSError.
        """
        self._database.parent.mkdir(parents=True, exist_ok=True)
        lock = _open(self._database.with_name(f"{self._database.name}.lock"))
        self._locks.append(lock)
        self._this = replace(self._this, alone=self._wait_for(lock, alone=alone))
        if self._this.alone:
            _write_whole(lock, self._this.line)  # an earlier release names the holder from this
        self._locks.append(self._register())
        self._save()

    def begin_as_bot(self) -> None:
        """Be the one process that receives messages of platforms and of HTTP. Raises DatabaseHeld and OSError."""
        lock = _open(self._database.with_name(f"{self._database.name}.bot.lock"))
        self._locks.append(lock)
        if not _lock(lock, fcntl.LOCK_EX):
            raise self._held([Process.parse(_read(lock))], _BOT_FIX)
        _write_whole(lock, self._this.line)

    def share(self) -> None:
        """Let other processes use the file, too. Raises DatabaseHeld if one of them locks it alone at that moment."""
        if not self._this.alone:
            return
        deadline = time.monotonic() + STARTING_SECONDS
        while not _lock(self._locks[0], fcntl.LOCK_SH):  # the change of a lock lets others in between
            if time.monotonic() > deadline:
                raise self._held(self.others(), _FIX)
            time.sleep(_PAUSE_SECONDS)
        self._this = replace(self._this, alone=False)
        self._save()

    def open_conversations(self, keys: Iterable[str]) -> None:
        """Publish the open conversations of this process."""
        self._this = replace(self._this, conversations=tuple(keys))
        with contextlib.suppress(OSError):  # the others need not know; a full disk is reported elsewhere
            self._save()

    def others(self) -> Sequence[Process]:
        """Return the other processes that use the file now."""
        try:
            paths = sorted(self._folder.iterdir())
        except FileNotFoundError:
            return ()
        processes = (_read_living(path) for path in paths if path != self._file)
        return [process for process in processes if process is not None]

    def is_alive(self, name: str) -> bool:
        """Return True if the process with this name of claims uses the file now."""
        match name.rsplit(":", 2):
            case [_, pid, token]:
                return _read_living(self._folder / f"{pid}-{token}") is not None
            case _:
                return False

    def end(self) -> None:
        """End the use of the file."""
        if self._locks:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)
                self._folder.rmdir()
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _wait_for(self, lock: int, *, alone: bool) -> bool:
        """Wait for the lock. Return True if this process has the file alone. Raises DatabaseHeld."""
        began = time.monotonic()
        while True:
            if _lock(lock, fcntl.LOCK_EX):
                if not self.others():
                    return True
                fcntl.flock(lock, fcntl.LOCK_UN)  # its owner is about to share it
            if not alone and _lock(lock, fcntl.LOCK_SH):
                return False
            waited = time.monotonic() - began
            others = self.others()
            working = [process for process in others if not process.alone]
            last = Process.parse(_read(lock))
            is_starting = bool(others) or (last is not None and last.alone)
            if alone and working:
                raise self._held(working, _FIX)
            if not is_starting and waited > SETTLING_SECONDS:
                raise self._held([last], _EARLIER_FIX)
            if waited > STARTING_SECONDS:
                raise self._held(others or [last], _FIX)
            time.sleep(_PAUSE_SECONDS)

    def _register(self) -> int:
        """Create and lock the file of this process."""
        while True:
            with contextlib.suppress(FileNotFoundError):  # the last one that left has removed the folder
                self._folder.mkdir(mode=0o700, exist_ok=True)
                file = _open(self._file)
                fcntl.flock(file, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file), self._file.stat()):
                        return file
                os.close(file)  # taken for one of a process that has ended, and removed

    def _save(self) -> None:
        os.write(self._locks[1], self._this.line)

    def _held(self, holders: Iterable[Process | None], fix: str) -> DatabaseHeld:
        names = " and ".join(str(holder) if holder else "another process" for holder in holders)
        return DatabaseHeld(f"The database {self._database} is in use by {names}.", fix)


def _open(path: Path) -> int:
    # Through a link, the file of somebody else would be emptied.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_living(path: Path) -> Process | None:
    """Return the process of a file. That of an ended one is removed, any other file is left alone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would be waited for
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):  # gone, a link, a socket
            return None
        raise
    try:
        if not (stat.S_ISREG(os.fstat(file).st_mode) and _NAME.fullmatch(path.name)):
            return None
        if _lock(file, fcntl.LOCK_SH):  # a living process has locked it
            path.unlink(missing_ok=True)
            return None
        # Without a line it has just begun.
        return Process.parse(_read(file)) or Process(int(path.name.partition("-")[0]), "countersign", time.time(), True)
    finally:
        os.close(file)


def _read(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode("utf-8", "replace")


def _write_whole(file: int, line: bytes) -> None:
    os.ftruncate(file, 0)
    os.write(file, line)


def fsync_directory(folder: Path) -> None:
    """Flush a directory's entries to disk, because fsync of a file does not include its name. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
