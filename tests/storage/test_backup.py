"""Backup of a database during writes."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.domain.audit import AuditHead
from bot.errors import DatabaseError
from bot.storage.backup import back_up
from tests.migrated import create_database


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return asyncio.run(create_database(tmp_path / "a.db"))


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return connection.execute(statement).fetchall()


@contextmanager
def somebody_writing(path: Path) -> Iterator[threading.Event]:
    """Write two rows in each transaction, in a thread. The event is set once the first transactions are committed."""
    leaving, begun = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("pragma journal_mode=wal")
            connection.execute("create table pairs (n integer, half text)")
            n = 0
            while not leaving.is_set():
                connection.execute("begin immediate")
                connection.execute("insert into pairs values (?, 'one')", (n,))
                connection.execute("insert into pairs values (?, 'other')", (n,))
                connection.execute("commit")
                n += 1
                if n == 50:
                    begun.set()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield begun
    finally:
        leaving.set()
        writing.join()


def test_every_copy_made_beside_a_writer_is_a_moment_of_it_and_one_whole_file(database: Path, tmp_path: Path) -> None:
    with somebody_writing(database) as begun:
        assert begun.wait(30)
        made = [tmp_path / f"copy-{n}.db" for n in range(5)]
        for path in made:
            back_up(database, path)
    many = []
    for each in made:
        assert rows(each, "pragma integrity_check") == [("ok",)]
        assert rows(each, "select n from pairs group by n having count(*) != 2") == []
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
        [(count,)] = rows(each, "select count(*) from pairs")
        many.append(count)
    assert many[0] >= 100
    assert many == sorted(many)
    beside = {path.name for path in tmp_path.iterdir()} - {path.name for path in tmp_path.glob("a.db*")}
    assert beside == {f"copy-{n}.db" for n in range(5)}


def test_the_last_row_of_the_audit_in_the_copy_is_printed(database: Path, tmp_path: Path) -> None:
    assert back_up(database, tmp_path / "none.db") == AuditHead()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(
            "insert into audit (seq, at, kind, conversation, turn_id, actor, body, previous, hash, subject, mac)"
            f" values (7, 1, 'asked', 'c', 't', 'a', '{{}}', '{'0' * 64}', '{'a' * 64}', '', '')"
        )
    assert back_up(database, tmp_path / "one.db") == AuditHead(7, "a" * 64)


def test_a_file_that_is_there_is_never_overwritten(database: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious.db"
    target.write_text("not to be lost")
    with pytest.raises(DatabaseError, match="already exists") as caught:
        back_up(database, target)
    assert caught.value.fix == "give another name"
    assert target.read_text() == "not to be lost"


def test_without_a_database_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="There is no database at"):
        back_up(tmp_path / "no.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"SQLite format 3\x00 and then rubbish" * 200, b"no database at all" * 100])
def test_a_damaged_database_is_not_called_a_backup(tmp_path: Path, content: bytes) -> None:
    damaged = tmp_path / "a.db"
    damaged.write_bytes(content)
    with pytest.raises(DatabaseError, match=r"cannot be copied|is damaged"):
        back_up(damaged, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


def test_pages_that_were_damaged_in_the_middle_are_noticed(database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("create table long (text)")
        connection.executemany("insert into long values (?)", [("x" * 900,) for _ in range(500)])
        connection.execute("pragma wal_checkpoint(truncate)")
        [(size,)] = connection.execute("pragma page_count").fetchall()
    with database.open("r+b") as file:
        file.seek(4096 * (size - 40))
        file.write(b"\xff" * 4096 * 8)
    with pytest.raises(DatabaseError, match=r"is damaged|malformed") as caught:
        back_up(database, tmp_path / "copy.db")
    assert caught.value.fix
    assert not (tmp_path / "copy.db").exists()


def test_a_missing_folder_is_named_with_a_fix(database: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"No such file or directory") as caught:
        back_up(database, tmp_path / "nowhere" / "copy.db")
    assert caught.value.fix == "check the folder, its permissions, and the room on its disk"
