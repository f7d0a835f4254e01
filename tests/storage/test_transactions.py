from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from bot.errors import DatabaseError, DatabaseUnavailable
from bot.storage.database import Database, Store, report, transaction
from bot.storage.sqlite import open_sqlite


class Words(Store):
    """Words in a table. `failures` holds errors of the next transactions."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.failures: list[str] = []
        self.ran = 0

    @transaction
    def add(self, connection: sa.Connection, word: str, *, times: int = 1) -> int:
        """Add a word and return the number of words."""
        self.ran += 1
        for _ in range(times):
            connection.exec_driver_sql("insert into words values (?)", (word,))
        if self.failures:
            raise DBAPIError(None, None, sqlite3.OperationalError(self.failures.pop()))
        return len(self._all(connection))

    @transaction(retry_seconds=0.0, rank="urgent")
    def add_at_once(self, connection: sa.Connection, word: str) -> int:
        """Add a word without retries."""
        self.ran += 1
        if self.failures:
            raise DBAPIError(None, None, sqlite3.OperationalError(self.failures.pop()))
        return len(self._all(connection))

    @report
    def all(self, connection: sa.Connection) -> list[str]:
        """Return the words."""
        return self._all(connection)

    @report
    def clear(self, connection: sa.Connection) -> None:
        """Try to write in a report."""
        connection.exec_driver_sql("delete from words")

    def _all(self, connection: sa.Connection) -> list[str]:
        return list(connection.exec_driver_sql("select word from words order by rowid").scalars())


@pytest.fixture
async def words(tmp_path: Path) -> AsyncIterator[Words]:
    database = open_sqlite(tmp_path / "a.db")
    await database.run(lambda connection: connection.exec_driver_sql("create table words (word text)"))
    yield Words(database)
    await database.close()


async def test_a_decorated_method_is_one_transaction_and_returns_its_result(words: Words) -> None:
    assert await words.add("a") == 1
    assert await words.add("b", times=2) == 3
    assert await words.all() == ["a", "b", "b"]
    assert words.add.__doc__ == "Add a word and return the number of words."


async def test_a_transaction_that_failed_for_now_runs_again_and_its_first_run_leaves_nothing(words: Words) -> None:
    words.failures = ["database is locked"]
    assert await words.add("a") == 1
    assert words.ran == 2
    words.failures = ["no such thing"]
    with pytest.raises(DatabaseError, match="no such thing"):
        await words.add("b")
    assert await words.all() == ["a"]


async def test_a_transaction_without_retries_is_not_run_again(words: Words) -> None:
    words.failures = ["database is locked"]
    with pytest.raises(DatabaseUnavailable):
        await words.add_at_once("a")
    assert words.ran == 1


async def test_a_cancelled_caller_does_not_cut_its_transaction(words: Words) -> None:
    task = asyncio.create_task(words.add("a", times=3))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await words.add("b") == 4


async def test_a_report_cannot_write(words: Words) -> None:
    await words.add("a")
    with pytest.raises(DatabaseError, match="read-only"):
        await words.clear()
    assert await words.all() == ["a"]
