from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bot.errors import DatabaseError, DatabaseUnavailable, DatabaseUnwritable
from bot.storage import sqlite
from bot.storage.database import Rank
from bot.storage.sqlite import SqliteDatabase, open_sqlite


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = open_sqlite(tmp_path / "a.db")
    await database.run(lambda connection: connection.exec_driver_sql("create table words (word text unique)"))
    yield database
    await database.close()


@pytest.fixture
def commits(database: SqliteDatabase) -> Iterator[list[int]]:
    """Collect one item for each commit of any database in this process."""
    counted: list[int] = []

    def count(_connection: sa.Connection) -> None:
        counted.append(1)

    sa.event.listen(sa.Engine, "commit", count)
    yield counted
    sa.event.remove(sa.Engine, "commit", count)


def adding(word: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return lambda connection: connection.exec_driver_sql("insert into words values (?)", (word,)).rowcount


async def words(database: SqliteDatabase) -> list[str]:
    def read(connection: sa.Connection) -> list[str]:
        return list(connection.exec_driver_sql("select word from words order by rowid").scalars())

    return await database.run(read)


async def test_queued_transactions_are_committed_together_in_their_order(
    database: SqliteDatabase, commits: list[int]
) -> None:
    await asyncio.gather(*(database.run(adding(f"w{n}")) for n in range(200)))
    assert await words(database) == [f"w{n}" for n in range(200)]
    assert len(commits) < 60


async def test_an_urgent_transaction_goes_before_all_that_wait(database: SqliteDatabase) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def block(_connection: sa.Connection) -> None:
        begun.set()
        go_on.wait(10)

    def noting(name: str) -> Callable[[sa.Connection], None]:
        return lambda _connection: done.append(name)

    blocking = asyncio.create_task(database.run(block))
    assert await asyncio.to_thread(begun.wait, 10)
    waiting = [asyncio.create_task(database.run(noting(f"{n}"))) for n in range(100)]
    await asyncio.sleep(0)
    urgent = [asyncio.create_task(database.run(noting(n), rank="urgent")) for n in ("a", "b")]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(blocking, *waiting, *urgent)
    assert done == ["a", "b", *(f"{n}" for n in range(100))]


@pytest.mark.parametrize(("delay", "is_first"), [(60.0, True), (0.0, False)])
async def test_messages_that_arrive_go_before_other_transactions_for_a_limited_time(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, delay: float, is_first: bool
) -> None:
    monkeypatch.setitem(sqlite._DELAYS, "ordinary", delay)
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def block(_connection: sa.Connection) -> None:
        begun.set()
        go_on.wait(10)

    blocking = asyncio.create_task(database.run(block))
    assert await asyncio.to_thread(begun.wait, 10)
    ranks: dict[str, Rank] = {"turn": "ordinary", "message": "arrival", "lease": "urgent"}
    running = []
    for name, rank in ranks.items():
        running.append(asyncio.create_task(database.run(lambda _, name=name: done.append(name), rank=rank)))  # type: ignore[misc]
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(blocking, *running)
    assert done == ["lease", *(("message", "turn") if is_first else ("turn", "message"))]


async def test_one_failure_in_a_batch_undoes_its_own_writes_and_no_others(database: SqliteDatabase) -> None:
    def two(connection: sa.Connection) -> None:
        adding("half")(connection)
        adding("same")(connection)

    results = await asyncio.gather(
        *(database.run(work) for work in (adding("before"), adding("same"), two, adding("after"))),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == ["int", "int", "IntegrityError", "int"]
    assert await words(database) == ["before", "same", "after"]


async def test_a_transaction_whose_task_is_gone_is_whole_all_the_same(database: SqliteDatabase) -> None:
    task = asyncio.create_task(database.run(adding("kept")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await words(database) == ["kept"]


@pytest.mark.parametrize("steps", range(4))
async def test_a_mistake_whose_task_is_gone_is_not_reported(database: SqliteDatabase, steps: int) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    def wrong(connection: sa.Connection) -> Any:
        return connection.exec_driver_sql("select * from nothing")

    for _ in range(20):
        asking = asyncio.create_task(database.run_once(wrong))
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking}, timeout=60)
        await database.run_once(lambda connection: connection.exec_driver_sql("select 1").scalar())
    del asking
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_locked_database_is_waited_for_and_told_of_once(
    database: SqliteDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await database.run(lambda connection: connection.exec_driver_sql("select 1"))
    quick = "pragma busy_timeout=10"

    def hurry(connection: sa.Connection) -> None:
        connection.exec_driver_sql(quick)

    await database.run(hurry)
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("begin immediate")
    writing = [asyncio.create_task(database.run(adding(f"w{n}"))) for n in range(3)]
    async with asyncio.timeout(10):
        while "does not answer" not in caplog.text:
            await asyncio.sleep(0.01)
    other.execute("rollback")
    other.close()
    await asyncio.gather(*writing)
    assert sorted(await words(database)) == ["w0", "w1", "w2"]
    assert caplog.text.count("does not answer") == 1
    assert caplog.text.count("is back after") == 1


async def test_a_full_disk_is_waited_for_and_loses_nothing(database: SqliteDatabase) -> None:
    def limit(pages: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        return lambda connection: connection.exec_driver_sql(f"pragma max_page_count={pages}").scalar()

    used = await database.run(lambda connection: connection.exec_driver_sql("pragma page_count").scalar_one())
    await database.run(limit(used))
    with pytest.raises(DatabaseUnavailable, match="full") as caught:
        await database.run(adding("x" * 100_000), retry_seconds=0.1)
    assert caught.value.fix == "free some space on its disk"
    writing = asyncio.create_task(database.run(adding("y" * 100_000)))
    await asyncio.sleep(0)
    await database.run(limit(1_000_000))
    await writing
    assert [word[0] for word in await words(database)] == ["y"]


async def test_a_disk_that_fills_up_in_the_middle_of_a_batch_fails_only_the_writes_that_do_not_fit(
    database: SqliteDatabase,
) -> None:
    used = await database.run(lambda connection: connection.exec_driver_sql("pragma page_count").scalar_one())
    await database.run(lambda connection: connection.exec_driver_sql(f"pragma max_page_count={used}").scalar())
    big = adding("y" * 100_000)
    results = await asyncio.gather(
        *(database.run(work, retry_seconds=0) for work in (adding("a"), adding("b"), big, adding("c"))),
        return_exceptions=True,
    )
    assert [type(result).__name__ for result in results] == ["int", "int", "DatabaseUnwritable", "int"]
    assert await words(database) == ["a", "b", "c"]


async def test_a_batch_waits_once_for_a_lock_and_not_once_for_each(database: SqliteDatabase, tmp_path: Path) -> None:
    await database.run(lambda connection: connection.exec_driver_sql("pragma busy_timeout=200").scalar())
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("begin immediate")
    began = time.monotonic()
    results = await asyncio.gather(
        *(database.run(adding(f"w{n}"), retry_seconds=0) for n in range(30)), return_exceptions=True
    )
    took = time.monotonic() - began
    other.execute("rollback")
    other.close()
    assert {type(result) for result in results} == {DatabaseUnavailable}
    assert took < 5


async def test_one_mistake_in_a_large_batch_costs_a_few_commits_more(
    database: SqliteDatabase, commits: list[int]
) -> None:
    held = threading.Event()
    holding = asyncio.create_task(database.run(lambda _connection: held.wait(10)))
    await asyncio.sleep(0)
    writing = [asyncio.create_task(database.run(adding(f"w{max(n, 1)}"))) for n in range(64)]
    await asyncio.sleep(0)
    held.set()
    results = await asyncio.gather(holding, *writing, return_exceptions=True)
    assert sum(isinstance(result, sa.exc.IntegrityError) for result in results) == 1
    assert len(await words(database)) == 63
    assert len(commits) < 12


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt])
async def test_a_transaction_that_wants_to_end_the_process_ends_neither_the_thread_nor_its_neighbours(
    database: SqliteDatabase, leaving: type[BaseException]
) -> None:
    def leaves(connection: sa.Connection) -> None:
        adding("half")(connection)
        raise leaving

    # asyncio cannot keep these two exceptions in a future: the caller gets a RuntimeError.
    asked = [database.run(work) for work in (adding("before"), leaves, adding("after"))]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["int", "RuntimeError", "int"]
    assert await words(database) == ["before", "after"]


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
async def test_nothing_is_acknowledged_that_went_into_a_file_which_is_not_there_any_more(
    database: SqliteDatabase, tmp_path: Path, replaced: bool
) -> None:
    await database.run(adding("kept"))
    (tmp_path / "a.db").rename(tmp_path / "elsewhere.db")
    if replaced:
        (tmp_path / "a.db").touch()
    with pytest.raises(DatabaseError, match="deleted or replaced") as caught:
        await database.run(adding("lost"))
    assert not isinstance(caught.value, DatabaseUnavailable)
    assert "start again" in caught.value.fix
    (tmp_path / "elsewhere.db").rename(tmp_path / "a.db")
    await database.run(adding("found again"))
    assert await words(database) == ["kept", "found again"]


async def test_closing_does_not_wait_for_ever_for_a_program_that_holds_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_CLOSING_SECONDS", 0.1)
    database = open_sqlite(tmp_path / "b.db")
    held = threading.Event()
    holding = asyncio.create_task(database.run(lambda _connection: held.wait(10)))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await database.close()
    held.set()
    assert await holding


async def test_a_mistake_is_no_trouble_that_passes(database: SqliteDatabase) -> None:
    with pytest.raises(DatabaseError, match="no such table") as caught:
        await database.run(lambda connection: connection.exec_driver_sql("select * from missing"))
    assert not isinstance(caught.value, DatabaseUnavailable)


async def test_messages_of_users_are_in_no_error(database: SqliteDatabase) -> None:
    await database.run(adding("secret"))
    with pytest.raises(sa.exc.IntegrityError) as caught:
        await database.run(adding("secret"))
    assert "secret" not in str(caught.value)


async def test_closing_finishes_the_accepted_transactions(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "b.db")
    await database.run(lambda connection: connection.exec_driver_sql("create table words (word text unique)"))
    writing = [asyncio.create_task(database.run(adding(f"w{n}"))) for n in range(100)]
    await asyncio.sleep(0)
    await database.close()
    await asyncio.gather(*writing)
    with pytest.raises(DatabaseError, match="closed"):
        await database.run(adding("late"))
    again = open_sqlite(tmp_path / "b.db")
    assert len(await words(again)) == 100
    await again.close()


async def test_the_file_survives_power_loss_by_its_settings(database: SqliteDatabase) -> None:
    def read(connection: sa.Connection) -> list[object]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.exec_driver_sql(f"pragma {name}").scalar() for name in names]

    assert await database.run(read) == ["wal", 2, 1]


def limit(pages: int) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.exec_driver_sql(f"pragma max_page_count={pages}").scalar()


@pytest.fixture
async def full(database: SqliteDatabase) -> SqliteDatabase:
    """Return a database with a file that must not grow. Short rows still fit."""
    await database.run(lambda connection: connection.exec_driver_sql("create table alembic_version (version_num text)"))
    await database.run(lambda connection: connection.exec_driver_sql("insert into alembic_version values ('1')"))
    used = await database.run(lambda connection: connection.exec_driver_sql("pragma page_count").scalar_one())
    await database.run(limit(used))
    return database


async def test_a_full_disk_is_logged_once_when_it_begins_and_once_when_it_is_over(
    full: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    await full.check_writable()
    writing = asyncio.create_task(full.run(adding("x" * 100_000)))
    async with asyncio.timeout(10):
        while "cannot be written" not in caplog.text:
            await asyncio.sleep(0.01)
    for n in range(20):
        await words(full)
        await full.run(adding(f"short {n}"))
    with pytest.raises(DatabaseUnwritable, match="its disk is full") as caught:
        await full.check_writable()
    assert caught.value.fix == "free some space on its disk"
    assert [record.getMessage() for record in caplog.records] == [
        f"the database {full.name} cannot be written: its disk is full, trying again. Fix: free some space on its disk"
    ]
    await full.run(limit(1_000_000))
    await writing
    await full.check_writable()
    assert len(caplog.records) == 2
    assert "can be written again after" in caplog.records[1].getMessage()


async def test_short_writes_that_fit_do_not_end_a_full_disk_and_time_without_refusals_does(
    full: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DatabaseUnwritable):
        await full.run(adding("x" * 100_000), retry_seconds=0)
    await full.run(adding("short"))
    with pytest.raises(DatabaseUnwritable):
        await full.check_writable()
    monkeypatch.setattr("bot.storage.database._QUIET_SECONDS", 0.0)
    await words(full)
    assert "can be written again after" in caplog.text
    await full.check_writable()


async def test_a_disk_with_next_to_no_space_is_full_before_a_write_fails(
    full: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bot.storage.sqlite._LEAST_FREE", 2**62)
    for _ in range(2):
        with pytest.raises(DatabaseUnwritable, match="its disk is full"):
            await full.check_writable()
    assert len(caplog.records) == 1


async def test_a_long_report_delays_no_transaction(database: SqliteDatabase) -> None:
    await database.run(adding("before"))
    reading = await _begin_endless(database)
    try:
        for n in range(20):
            await asyncio.wait_for(database.run(adding(f"w{n}")), 10)
        assert not reading.done()
    finally:
        reading.cancel()
        await asyncio.wait({reading})


async def test_a_report_sees_what_was_committed_and_changes_nothing(database: SqliteDatabase) -> None:
    await database.run(adding("before"))
    assert await database.read(lambda reader: list(reader.exec_driver_sql("select word from words").scalars()))
    with pytest.raises(DatabaseError):
        await database.read(adding("never"))
    assert await words(database) == ["before"]


async def test_a_cancelled_report_ends_and_the_next_one_is_read(database: SqliteDatabase) -> None:
    for _ in range(5):
        reading = await _begin_endless(database)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(reading, 10)
    assert await asyncio.wait_for(database.read(_one), 10) == 1


async def test_a_report_that_is_cancelled_again_while_it_ends_breaks_no_later_one(database: SqliteDatabase) -> None:
    for _ in range(5):
        reading = await _begin_endless(database)
        while not reading.done():
            reading.cancel()
            await asyncio.sleep(0)
        assert reading.cancelled()
        assert [await asyncio.wait_for(database.read(_one), 10) for _ in range(3)] == [1, 1, 1]


async def test_a_report_that_takes_too_long_counts_as_unavailable(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_LONGEST_READ", 0.2)
    with pytest.raises(DatabaseUnavailable, match="too long"):
        await database.read(_endless)
    monkeypatch.undo()
    assert await database.read(_one) == 1


async def test_closing_interrupts_a_report(database: SqliteDatabase) -> None:
    reading = await _begin_endless(database)
    await asyncio.wait_for(database.close(), 10)
    with pytest.raises(DatabaseError):
        await asyncio.wait_for(reading, 10)
    with pytest.raises(DatabaseError, match="closed"):
        await database.read(_one)


def _one(reader: sa.Connection) -> int:
    return int(reader.exec_driver_sql("select 1").scalar_one())


async def _begin_endless(database: SqliteDatabase) -> asyncio.Task[int]:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def read(reader: sa.Connection) -> int:
        loop.call_soon_threadsafe(begun.set)
        return _endless(reader)

    reading = asyncio.create_task(database.read(read))
    await asyncio.wait_for(begun.wait(), 10)
    return reading


def _endless(reader: sa.Connection) -> int:
    """Count for hours."""
    return int(
        reader.exec_driver_sql(
            "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
        ).scalar_one()
    )
