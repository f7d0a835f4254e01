from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.errors import DatabaseHeld
from bot.storage.lock_file import FileUse

HOLDER = """
import fcntl
import sys
from pathlib import Path
from bot.storage.lock_file import FileUse
use = FileUse(Path(sys.argv[1]), "countersign chat")
use.begin()
if "share" in sys.argv:
    use.share()
if "between locks" in sys.argv:
    fcntl.flock(use._locks[0], fcntl.LOCK_UN)
if "as bot" in sys.argv:
    use.begin_as_bot()
use.open_conversations(["console:local:ana:c1"])
print(use.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "a.db"


@contextmanager
def running_holder(database: Path, *how: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start another process that uses the file. Yield it and its name."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(database), *how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        yield holder, holder.stdout.readline().strip()
        holder.kill()


@contextmanager
def open_file_use(database: Path, *, alone: bool = False) -> Iterator[FileUse]:
    use = FileUse(database, "countersign chat")
    try:
        use.begin(alone=alone)
        yield use
    finally:
        use.end()


def test_processes_use_the_file_together_and_know_of_each_other_until_kill_9(database: Path) -> None:
    with running_holder(database, "share") as (holder, name), open_file_use(database) as use:
        assert not use.is_alone
        (other,) = use.others()
        assert (other.pid, other.purpose, other.conversations) == (
            holder.pid,
            "countersign chat",
            ("console:local:ana:c1",),
        )
        assert use.is_alive(name)
        assert use.is_alive(use.name)
        holder.kill()
        holder.wait()
        assert not use.others()
        assert not use.is_alive(name)
        assert not use.is_alone  # another process may start at any time
    with open_file_use(database) as use:
        assert use.is_alone
        assert not use.is_alive("an-older-release:123:abcd")
        assert not use.is_alive("nothing")
    assert sorted(path.name for path in database.parent.iterdir()) == ["a.db.lock"]


def test_a_process_that_must_be_alone_reads_which_others_run(database: Path) -> None:
    with running_holder(database, "share") as (holder, _):
        who = rf"in use by process {holder.pid} \(countersign chat, since \d\d:\d\d\)\. Fix: close it first"
        with pytest.raises(DatabaseHeld, match=who), open_file_use(database, alone=True):
            pytest.fail("both have it")
    with open_file_use(database, alone=True) as use:
        assert use.is_alone


def test_one_that_starts_is_waited_for(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor() as threads, open_file_use(database) as first:
        assert first.is_alone
        second = FileUse(database, "countersign chat")
        waiting = threads.submit(second.begin)
        time.sleep(0.7)
        assert not waiting.done()
        first.share()
        waiting.result(10)
        assert not second.is_alone
        second.end()
    monkeypatch.setattr("bot.storage.lock_file.STARTING_SECONDS", 0.3)
    with open_file_use(database), pytest.raises(DatabaseHeld, match=f"process {os.getpid()} "), open_file_use(database):
        pytest.fail("both have it")


def test_of_many_that_begin_at_once_one_is_alone_at_a_time(database: Path) -> None:
    alone: list[str] = []

    def begin() -> None:
        with open_file_use(database) as use:
            if use.is_alone:
                alone.append(use.name)
                assert alone == [use.name]
                time.sleep(0.05)
                alone.remove(use.name)
                use.share()
            time.sleep(0.1)

    with ThreadPoolExecutor(20) as threads:
        for beginning in [threads.submit(begin) for _ in range(20)]:
            beginning.result(30)


def test_an_earlier_release_has_the_file_for_itself(database: Path) -> None:
    with running_holder(database) as (holder, _):  # the earlier release does not share the file
        for entry in database.with_name("a.db.processes").iterdir():
            entry.unlink()  # an earlier release has no such entries
        line = json.dumps({"pid": holder.pid, "purpose": "countersign chat", "since": time.time()})
        database.with_name("a.db.lock").write_text(line)
        with pytest.raises(DatabaseHeld, match=rf"process {holder.pid} \(.+earlier release"), open_file_use(database):
            pytest.fail("both have it")
    with open_file_use(database):
        facts = json.loads(
            database.with_name("a.db.lock").read_text()
        )  # the facts that an earlier release shows of this process
        assert (facts["pid"], facts["purpose"]) == (os.getpid(), "countersign chat")


def test_one_that_is_about_to_share_its_lock_does_not_lose_it(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.storage.lock_file.STARTING_SECONDS", 0.3)
    with running_holder(database, "between locks") as (holder, _):
        with open_file_use(database) as use:
            assert not use.is_alone
        with pytest.raises(DatabaseHeld, match=f"process {holder.pid} "), open_file_use(database, alone=True):
            pytest.fail("both have it")


def test_one_process_receives_messages(database: Path) -> None:
    with running_holder(database, "share", "as bot") as (holder, _), open_file_use(database) as use:
        with pytest.raises(DatabaseHeld, match=rf"process {holder.pid} \(.+PostgreSQL"):
            use.begin_as_bot()
        holder.kill()
        holder.wait()
    with open_file_use(database) as use:
        use.begin_as_bot()


def test_a_line_that_is_not_whole_yet_hides_none_before_it(database: Path) -> None:
    with running_holder(database, "share") as (holder, _), open_file_use(database) as use:
        (entry,) = [path for path in database.with_name("a.db.processes").iterdir() if str(holder.pid) in path.name]
        with entry.open("a") as file:
            file.write('{"pid": 1, "purp')
        assert [other.pid for other in use.others()] == [holder.pid]


def test_a_file_of_no_process_is_neither_waited_for_nor_taken_for_one(database: Path, tmp_path: Path) -> None:
    with open_file_use(database) as first:
        first.share()
        processes = database.with_name("a.db.processes")
        os.mkfifo(processes / "1-00000000")
        (processes / "2-00000000").mkdir()
        precious = tmp_path / "precious"
        precious.write_text("{}")
        (processes / "3-00000000").symlink_to(precious)
        (processes / "nonsense").write_text("{}")
        (processes / "4-00000000").write_text("")
        assert first.others() == []
        with open_file_use(database) as second:
            assert [process.pid for process in second.others()] == [os.getpid()]
        assert precious.exists()
        assert sorted(path.name[1:] for path in processes.iterdir() if path.name[1] == "-") == ["-00000000"] * 3
        assert (processes / "nonsense").exists()


@pytest.mark.parametrize("ending", ["lock", "bot.lock"])
def test_a_link_in_the_place_of_a_lock_empties_no_other_file(database: Path, tmp_path: Path, ending: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    database.parent.mkdir()
    database.with_name(f"a.db.{ending}").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"), open_file_use(database) as use:
        use.begin_as_bot()
    assert precious.read_text() == "mine"
