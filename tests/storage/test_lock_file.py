from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bot.errors import DatabaseHeld
from bot.storage.lock_file import LockFile

HOLDER = """
import sys
from pathlib import Path
from bot.storage.lock_file import LockFile
lock = LockFile(Path(sys.argv[1]))
lock.acquire("countersign chat")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_holds_the_database(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        who = rf"in use by process {holder.pid} \(countersign chat, since \d\d:\d\d\)"
        with pytest.raises(DatabaseHeld, match=who):
            LockFile(database).acquire("another chat")
        holder.kill()
        holder.wait()
    # The lock died with its process.
    lock = LockFile(database)
    lock.acquire("another chat")
    lock.release()


def test_a_lock_given_up_can_be_taken_again(tmp_path: Path) -> None:
    first, second = LockFile(tmp_path / "a.db"), LockFile(tmp_path / "a.db")
    first.acquire("one")
    first.release()
    second.acquire("two")
    assert str(os.getpid()) in (tmp_path / "a.db.lock").read_text()
    second.release()
