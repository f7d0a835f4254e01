"""Contract of leases (`bot.ports.Leases`), on each database."""

from __future__ import annotations

import asyncio

import pytest

from bot.errors import DatabaseUnavailable
from bot.ports import Leases
from bot.storage.address import PostgresServer
from bot.storage.coordination import SqlLeases
from bot.storage.postgresql import PostgresDatabase
from tests.postgres import Server
from tests.turn_log_harness import Harness, PostgresHarness

GATEWAY = "discord"
SECONDS = 15.0


@pytest.fixture
def leases(harness: Harness) -> Leases:
    return SqlLeases(harness.database)


async def test_a_held_lease_is_not_given_to_another(leases: Leases) -> None:
    assert await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    assert not await leases.acquire_or_renew(GATEWAY, "other", SECONDS)


async def test_a_holder_who_renews_in_time_keeps_the_lease(leases: Leases, harness: Harness) -> None:
    for _ in range(5):
        assert await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
        harness.time += SECONDS - 1
        assert not await leases.acquire_or_renew(GATEWAY, "other", SECONDS)


async def test_a_vanished_holder_is_followed_when_its_seconds_are_over(leases: Leases, harness: Harness) -> None:
    await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    harness.time += SECONDS
    assert await leases.acquire_or_renew(GATEWAY, "other", SECONDS)
    assert not await leases.acquire_or_renew(GATEWAY, "one", SECONDS)


async def test_a_late_holder_keeps_the_lease_if_no_other_took_it(leases: Leases, harness: Harness) -> None:
    await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    harness.time += 10 * SECONDS
    assert await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    assert not await leases.acquire_or_renew(GATEWAY, "other", SECONDS)


async def test_a_released_lease_is_free_at_once(leases: Leases) -> None:
    await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    await leases.release(GATEWAY, "one")
    assert await leases.acquire_or_renew(GATEWAY, "other", SECONDS)


async def test_the_holders_of_leases_are_known_by_the_beginning_of_their_names(
    leases: Leases, harness: Harness
) -> None:
    await leases.acquire_or_renew("discord:1", "one", SECONDS)
    await leases.acquire_or_renew("discord:%", "two", 2 * SECONDS)
    await leases.acquire_or_renew("elsewhere", "one", SECONDS)
    assert await leases.find_holders("discord:") == {"discord:1": "one", "discord:%": "two"}
    assert await leases.find_holders("discord:%") == {"discord:%": "two"}
    harness.time += SECONDS
    assert await leases.find_holders("discord:") == {"discord:%": "two"}


async def test_only_the_holder_releases(leases: Leases) -> None:
    await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    await leases.release(GATEWAY, "other")
    await leases.release("nobody's", "other")
    assert not await leases.acquire_or_renew(GATEWAY, "other", SECONDS)


async def test_one_name_says_nothing_of_another(leases: Leases) -> None:
    assert await leases.acquire_or_renew(GATEWAY, "one", SECONDS)
    assert await leases.acquire_or_renew("elsewhere", "other", SECONDS)


async def test_of_many_that_come_at_once_one_gets_it(postgres: Server) -> None:
    address = await asyncio.to_thread(postgres.fresh, virtual_clock=True)
    first = PostgresHarness(address)
    processes = [first, *(first.another_process() for _ in range(4))]
    try:
        for _ in range(10):
            asked = [
                (f"process {number}, task {task}", SqlLeases(process.database))
                for number, process in enumerate(processes)
                for task in range(4)
            ]
            results = await asyncio.gather(
                *(leases.acquire_or_renew(GATEWAY, holder, SECONDS) for holder, leases in asked)
            )
            assert sum(results) == 1
            first.time += SECONDS
    finally:
        for process in processes:
            await process.close()


async def test_that_the_server_is_away_is_said_while_there_is_time_to_stop() -> None:
    database = PostgresDatabase(PostgresServer("postgresql://nobody@127.0.0.1:1/none"))
    seconds = 3.0
    try:
        async with asyncio.timeout(seconds * 2 / 3):
            with pytest.raises(DatabaseUnavailable):
                await SqlLeases(database).acquire_or_renew(GATEWAY, "one", seconds)
    finally:
        await database.close()
