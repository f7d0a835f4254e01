from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
import sqlalchemy as sa

from bot.domain.turns import TurnStatus, Wakeup, WakeupKind
from bot.errors import DatabaseError, DatabaseUnavailable
from bot.storage import postgresql
from bot.storage.address import PostgresServer, read_address
from bot.storage.database import Rank
from bot.storage.postgresql import PostgresDatabase, listen, parse_wakeup
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import ANA, message, until
from tests.postgres import Server, running_server


@pytest.fixture
async def address(request: pytest.FixtureRequest) -> str:
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    return await asyncio.to_thread(server.fresh)


@pytest.fixture
async def database(address: str) -> AsyncIterator[PostgresDatabase]:
    database = PostgresDatabase(PostgresServer(address))
    yield database
    await database.close()


async def test_a_connection_that_breaks_in_the_middle_is_made_anew(
    database: PostgresDatabase, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = SqlTurnLog(database)
    await log.enqueue(message("one"))
    broken = asyncio.Event()
    loop = asyncio.get_running_loop()
    times: list[int] = []

    def breaks_once(connection: sa.Connection) -> int:
        pid = connection.exec_driver_sql("select pg_backend_pid()").scalar_one()
        if not times:
            times.append(pid)
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s)", [pid])
            loop.call_soon_threadsafe(broken.set)
        return int(connection.exec_driver_sql("select count(*) from turns").scalar_one())

    assert await database.run(breaks_once) == 1
    assert broken.is_set()
    assert caplog.text.count("does not answer") == 1
    assert caplog.text.count("is back after") == 1


async def test_a_commit_that_broke_off_after_it_had_happened_makes_no_second_turn(
    database: PostgresDatabase,
) -> None:
    run_once = database.run_once
    broke: list[int] = []

    async def cut_off(transaction, rank: Rank = "ordinary"):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        result = await run_once(transaction, rank)
        if not broke:
            broke.append(1)
            raise sa.exc.OperationalError("COMMIT", None, psycopg.OperationalError("the connection was reset"))
        return result

    database.run_once = cut_off  # type: ignore[method-assign]
    log = SqlTurnLog(database)
    receipt = await log.enqueue(message("hi"))
    assert (receipt.redelivery, receipt.queue_position) == (False, 0)
    assert len(await log.claim(8)) == 1


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    database = PostgresDatabase(PostgresServer("postgresql://user:hunter2@127.0.0.1:1/db"))
    with pytest.raises(DatabaseUnavailable) as caught:
        await database.run(lambda connection: connection.exec_driver_sql("select 1"), retry_seconds=0.05)
    assert "postgresql://127.0.0.1/db is away" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(read_address("postgresql://user:hunter2@127.0.0.1:1/db"))
    await database.close()


async def test_a_mistake_is_no_trouble_that_passes(database: PostgresDatabase) -> None:
    with pytest.raises(DatabaseError, match="does not exist") as caught:
        await database.run(lambda connection: connection.exec_driver_sql("select * from nothing"))
    assert not isinstance(caught.value, DatabaseUnavailable)


async def test_a_closed_database_takes_nothing_more(address: str) -> None:
    database = PostgresDatabase(PostgresServer(address))
    await database.close()
    with pytest.raises(DatabaseError, match="closed"):
        await database.run(lambda connection: connection.exec_driver_sql("select 1"))


async def test_a_process_that_freezes_in_a_transaction_loses_its_rows_before_others_give_up_waiting(
    database: PostgresDatabase,
) -> None:
    def read(connection: sa.Connection) -> list[str]:
        names = ("idle_in_transaction_session_timeout", "lock_timeout")
        return [connection.exec_driver_sql(f"show {name}").scalar_one() for name in names]

    assert await database.run(read) == ["5s", "8s"]


async def test_a_process_that_was_frozen_in_a_transaction_does_it_again(database: PostgresDatabase) -> None:
    tried: list[int] = []

    def freezes_once(connection: sa.Connection) -> int:
        tried.append(1)
        if len(tried) == 1:
            connection.exec_driver_sql("set local idle_in_transaction_session_timeout = 20")
            time.sleep(0.2)
        return int(connection.exec_driver_sql("select 7").scalar_one())

    assert await database.run(freezes_once) == 7
    assert len(tried) == 2


async def test_a_server_that_became_read_only_is_left_and_a_writable_one_waited_for(
    database: PostgresDatabase, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A failover: the old connections lead to a server that is now a standby."""
    log = SqlTurnLog(database)

    def prefer(read_only: str) -> None:
        with psycopg.connect(address, autocommit=True, options="-c default_transaction_read_only=off") as other:
            name = address.partition("?")[0].rpartition("/")[2]
            other.execute(f"alter database {name} set default_transaction_read_only = {read_only}")

    prefer("on")
    receiving = asyncio.create_task(log.enqueue(message("hi")))
    await until(lambda: "cannot be written: it is read-only" in caplog.text)
    prefer("off")
    assert not (await receiving).redelivery


async def test_a_server_that_says_nothing_any_more_is_hung_up_on(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_LONGEST_SECONDS", 0.2)
    with suspend_process(await backend(database)):
        async with asyncio.timeout(15):
            assert await database.run(lambda connection: connection.exec_driver_sql("select 1").scalar_one()) == 1


async def test_closing_does_not_wait_for_a_server_that_says_nothing(address: str) -> None:
    database = PostgresDatabase(PostgresServer(address))
    with suspend_process(await backend(database)):
        asking = asyncio.create_task(database.run(lambda connection: connection.exec_driver_sql("select 1")))
        await until(lambda: any(running.socket is not None for running in database._running.values()))
        began = time.monotonic()
        await database.close()
        assert time.monotonic() - began < postgresql._LONGEST_SECONDS / 2
        with pytest.raises(DatabaseError):
            await asking
    assert not [thread for thread in threading.enumerate() if thread in database._threads._threads]


async def test_leases_are_renewed_though_every_thread_waits(database: PostgresDatabase, address: str) -> None:
    log = SqlTurnLog(database)
    await log.enqueue(message("hi"))
    (claim,) = await log.claim(1)
    with psycopg.connect(address) as other:
        other.execute("lock table conversations in access exclusive mode")
        waiting = [asyncio.create_task(log.enqueue(message(f"{n}"))) for n in range(8)]
        await until(lambda: all(running.socket is not None for running in list(database._running.values())[:4]))
        async with asyncio.timeout(7):  # shorter than the wait for the lock
            assert await log.renew([claim]) == {claim.turn_id}
            await log.renew_deliveries([claim.turn_id])
        other.rollback()
    assert len({receipt.turn_id for receipt in await asyncio.gather(*waiting)}) == 8


async def backend(database: PostgresDatabase) -> int:
    """Return the process id of the server behind the only connection."""
    return await database.run(lambda c: int(c.exec_driver_sql("select pg_backend_pid()").scalar_one()))


@contextmanager
def suspend_process(pid: int) -> Iterator[None]:
    """Suspend a process so that it does not respond."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_pooler_that_refuses_session_settings_gets_none(address: str) -> None:
    database = PostgresDatabase(PostgresServer(f"{address}&options="))
    timeout = await database.run(
        lambda connection: connection.exec_driver_sql("show idle_in_transaction_session_timeout").scalar_one()
    )
    assert timeout == "0"
    await database.close()


async def test_other_processes_are_heard_and_a_lost_line_is_taken_up_again(
    database: PostgresDatabase, address: str
) -> None:
    heard: list[Wakeup] = []
    listening = asyncio.create_task(listen(PostgresServer(address), heard.append))
    log = SqlTurnLog(database)
    await until(lambda: heard == [Wakeup()])
    receipt = await log.enqueue(message("hi"))
    await until(lambda: len(heard) == 2)
    with psycopg.connect(address, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'countersign wakeups'"
            " and datname = current_database()"
        )
    # After a reconnect, the listener asks for a poll for missed wakeups.
    await until(lambda: len(heard) == 3)
    await log.stop(receipt.turn_id, ANA)
    await until(lambda: Wakeup(WakeupKind.STOP_REQUESTED, receipt.turn_id) in heard)
    listening.cancel()
    await asyncio.wait({listening})


def test_words_of_a_later_release_only_say_that_there_is_something_to_look_for() -> None:
    assert parse_wakeup("decided t1") == Wakeup(WakeupKind.APPROVAL_DECIDED, "t1")
    assert parse_wakeup("exploded t1 x") == Wakeup()


def test_turns_wait_through_a_restart_of_the_server_and_go_on() -> None:
    async def story(server: Server, address: str) -> None:
        database = PostgresDatabase(PostgresServer(address))
        log = SqlTurnLog(database)
        receipt = await log.enqueue(message("hi"))
        (claim,) = await log.claim(1)
        restarting = asyncio.create_task(asyncio.to_thread(server.restart))
        writes = 0
        while not restarting.done():
            await log.resume(claim)
            writes += 1
        await restarting
        record = await log.finish(claim, TurnStatus.DONE, (), "")
        assert record.turn.id == receipt.turn_id
        assert writes > 0
        await database.close()

    with running_server("apart") as server:
        asyncio.run(story(server, server.new()))
