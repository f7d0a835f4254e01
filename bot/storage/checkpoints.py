"""Checkpoints of the audit: their append-only files, one checkpoint a line, and the comparison with its rows.

Checkpoints are also read from logs. Any number of processes may append to one file, under a file lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from bot.domain.audit import AuditHead, Checkpoint, MacCheck
from bot.storage.audit import read_head
from bot.storage.audit_chain import AuditKeys
from bot.storage.database import now
from bot.storage.lock_file import fsync_directory
from bot.storage.tables import audit

_LOCK_SECONDS = 2.0
_LOCK_PAUSE = 0.02
_TAIL = 4096
"""Bytes at the end of a file that hold its last checkpoint."""
_hash_of_row = sa.select(audit.c.hash).where(audit.c.seq == sa.bindparam("seq"))
_PREFIX = str(Checkpoint(0, "", 0.0)).partition(" 0:")[0].encode()
_LONGEST_LINE = 65_536
_NO_ROW = (AuditHead().seq, AuditHead().hash)


@dataclass(frozen=True, slots=True)
class CheckpointLines:
    """The checkpoints of one file in order, and the numbers of incomplete checkpoint lines. `mixed` is True if the
    file has other lines, as a log has.
    """

    path: Path
    checkpoints: Sequence[Checkpoint]
    torn: Sequence[int] = ()
    mixed: bool = False


def make_checkpoint(connection: sa.Connection, keys: AuditKeys) -> Checkpoint:
    """Return a checkpoint of the last row that is committed."""
    head = read_head(connection)
    at: float = connection.execute(sa.select(now())).scalar_one()
    return keys.sign_checkpoint(head.seq, head.hash, round(float(at), 3))


def matches_row(connection: sa.Connection, checkpoint: Checkpoint) -> bool:
    """Return True if the row of a checkpoint is there and is that row."""
    row_hash = connection.execute(_hash_of_row, {"seq": checkpoint.seq}).scalar()
    return checkpoint.seq == 0 or bool(row_hash == checkpoint.hash)


def append_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Append one line and flush it to disk. No effect if the last line is about the same row. An incompletely written
    line is removed again. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(handle)
        size = os.fstat(handle).st_size
        tail = os.pread(handle, _TAIL, max(0, size - _TAIL))
        last = _last(tail) if tail.endswith(b"\n") else None
        if last is not None and (last.seq, last.hash, last.key) == (checkpoint.seq, checkpoint.hash, checkpoint.key):
            return
        # A line cut off by a crash must not spoil the next one.
        first = b"\n" if tail and not tail.endswith(b"\n") else b""
        line = first + f"{checkpoint}\n".encode()
        if os.write(handle, line) < len(line):
            os.ftruncate(handle, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    finally:
        os.close(handle)
    if new:
        fsync_directory(path.parent)


def last_checkpoint(path: Path) -> Checkpoint | None:
    """Return the last checkpoint of a file, None if it holds none. Raises OSError."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _TAIL))
        return _last(file.read())


def read_checkpoints(path: Path) -> CheckpointLines:
    """Return all checkpoints of a checkpoint file, or of a log with other lines in it. Raises OSError."""
    checkpoints: list[Checkpoint] = []
    torn: list[int] = []
    mixed = False
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            try:
                checkpoint = Checkpoint.find(line.decode("utf-8", "replace"))
            except ValueError:
                torn.append(number)
            else:
                checkpoints += [checkpoint] if checkpoint else []
                mixed |= checkpoint is None or not line.startswith(_PREFIX)
    return CheckpointLines(path, checkpoints, torn, mixed)


class CheckpointCheck:
    """Comparison of rows with checkpoints from outside the database."""

    def __init__(self, checkpoints: Sequence[Checkpoint]) -> None:
        self._by_seq: dict[int, list[Checkpoint]] = {}
        for checkpoint in checkpoints:
            self._by_seq.setdefault(checkpoint.seq, []).append(checkpoint)
        self.looked_up: set[Checkpoint] = set()
        self.fitting: set[Checkpoint] = {
            checkpoint for checkpoint in checkpoints if (checkpoint.seq, checkpoint.hash) == _NO_ROW
        }

    def add(self, seq: object, row_hash: object) -> None:
        """Compare one row."""
        if isinstance(seq, int) and seq in self._by_seq:
            self.looked_up.update(self._by_seq[seq])
            self.fitting.update(checkpoint for checkpoint in self._by_seq[seq] if checkpoint.hash == row_hash)

    @property
    def newest(self) -> Checkpoint | None:
        """The fitting checkpoint with the highest row number, `None` without any."""
        return max(self.fitting, key=lambda checkpoint: (checkpoint.seq, checkpoint.at), default=None)


@dataclass(frozen=True, slots=True)
class SortedCheckpoints:
    """The checkpoints of one file by their MACs: `sound` ones count, `foreign` ones have another key, or none."""

    lines: CheckpointLines
    sound: Sequence[Checkpoint]
    wrong: Sequence[Checkpoint]
    foreign: Sequence[Checkpoint]


def sort_checkpoints(keys: AuditKeys, files: Sequence[CheckpointLines]) -> Sequence[SortedCheckpoints]:
    """Return the checkpoints of each file by their MACs. Deriving a key from a password takes time."""
    # Without a key, a missing MAC is expected.
    sound = MacCheck.GOOD if keys.ids else MacCheck.MISSING
    by_file = []
    for file in files:
        by_check: dict[MacCheck, list[Checkpoint]] = {sound: [], MacCheck.WRONG: []}
        foreign: list[Checkpoint] = []
        for checkpoint in file.checkpoints:
            by_check.get(keys.check_checkpoint(checkpoint), foreign).append(checkpoint)
        by_file.append(SortedCheckpoints(file, by_check[sound], by_check[MacCheck.WRONG], foreign))
    return by_file


def _lock(handle: int) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_PAUSE)
        else:
            return


def _last(tail: bytes) -> Checkpoint | None:
    for line in reversed(tail.decode("utf-8", "replace").splitlines()):
        try:
            checkpoint = Checkpoint.find(line)
        except ValueError:
            continue
        if checkpoint is not None:
            return checkpoint
    return None
