"""The checkpoint file: lines of several processes, crashes, and a full disk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bot.storage.audit_chain import AuditKeys
from bot.storage.checkpoints import append_checkpoint, last_checkpoint, read_checkpoints

KEYS = AuditKeys(lambda: (b"k" * 32,))
ROWS = [KEYS.sign_checkpoint(n, f"{n:064x}", 1000.5 + n) for n in range(200)]


def test_lines_of_many_writers_at_once_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.checkpoints"
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda row: append_checkpoint(path, row), ROWS))
    checkpoints = read_checkpoints(path)
    assert (set(checkpoints.checkpoints), checkpoints.torn, checkpoints.mixed) == (set(ROWS), [], False)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_same_row_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    for at in (1.5, 2.5):
        append_checkpoint(path, KEYS.sign_checkpoint(7, "ab" * 32, at))
    assert [checkpoint.at for checkpoint in read_checkpoints(path).checkpoints] == [1.5]


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    append_checkpoint(path, ROWS[1])
    with path.open("a") as file:
        file.write(str(ROWS[2])[:50])
    assert last_checkpoint(path) == ROWS[1]
    append_checkpoint(path, ROWS[3])
    checkpoints = read_checkpoints(path)
    assert (checkpoints.checkpoints, checkpoints.torn) == ([ROWS[1], ROWS[3]], [2])


def test_a_line_for_which_there_is_no_room_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.checkpoints"
    append_checkpoint(path, ROWS[1])
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:20]))
    with pytest.raises(OSError, match="No space left"):
        append_checkpoint(path, ROWS[2])
    monkeypatch.undo()
    append_checkpoint(path, ROWS[3])
    checkpoints = read_checkpoints(path)
    assert (checkpoints.checkpoints, checkpoints.torn) == ([ROWS[1], ROWS[3]], [])


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        append_checkpoint(tmp_path / "a.checkpoints", ROWS[1])
    assert not (tmp_path / "elsewhere").exists()
