"""Contract of quotas (`bot.ports.Quotas`), on each database."""

from __future__ import annotations

import asyncio
import random

import pytest

from bot.ports import Quota, QuotaExceeded, QuotaGranted, Quotas
from bot.storage.address import PostgresServer
from bot.storage.coordination import SqlQuotas
from bot.storage.postgresql import PostgresDatabase
from tests.postgres import Server
from tests.turn_log_harness import Harness, PostgresHarness

QUOTA = Quota(at_once=5, interval=2.0)
A_MINUTE = 5 + 30


@pytest.fixture
def quotas(harness: Harness) -> Quotas:
    return SqlQuotas(harness.database)


async def waits(quotas: Quotas, times: int, *, most: float = 1000.0, name: str = "calls") -> list[float]:
    """Return the seconds that each of `times` requests has to wait."""
    answers = [await quotas.acquire(name, QUOTA, most) for _ in range(times)]
    assert all(isinstance(answer, QuotaGranted) for answer in answers)
    return [answer.wait for answer in answers]


async def seconds_to_wait(quotas: Quotas, *, most: float) -> float:
    """Return the seconds that a rejected request would have to wait."""
    answer = await quotas.acquire("calls", QUOTA, most)
    assert isinstance(answer, QuotaExceeded)
    return answer.wait


async def test_after_a_quiet_time_several_go_at_once_and_the_rest_one_by_one(quotas: Quotas) -> None:
    assert await waits(quotas, 8) == pytest.approx([0, 0, 0, 0, 0, 2, 4, 6])


async def test_it_is_said_how_many_may_go_at_once_after_this(quotas: Quotas, harness: Harness) -> None:
    answers = [await quotas.acquire("calls", QUOTA, 1000) for _ in range(7)]
    assert [each.left for each in answers if isinstance(each, QuotaGranted)] == pytest.approx([4, 3, 2, 1, 0, -1, -2])
    harness.time += 8
    answer = await quotas.acquire("calls", QUOTA, 1000)
    assert isinstance(answer, QuotaGranted)
    assert answer.left == pytest.approx(1)


async def test_a_quiet_time_saves_up_no_more_than_one_burst(quotas: Quotas, harness: Harness) -> None:
    await waits(quotas, 8)
    harness.time += 3600
    assert await waits(quotas, 6) == pytest.approx([0, 0, 0, 0, 0, 2])


async def test_a_caller_who_would_wait_too_long_takes_nothing_and_gets_the_wait(quotas: Quotas) -> None:
    await waits(quotas, 6)
    for _ in range(3):
        assert await seconds_to_wait(quotas, most=3.0) == pytest.approx(4)
    assert await waits(quotas, 1) == pytest.approx([4])


async def test_one_name_says_nothing_of_another(quotas: Quotas) -> None:
    await waits(quotas, 6)
    assert await waits(quotas, 5, name="other calls") == [0] * 5


async def test_holding_off_holds_for_everybody_and_goes_on_one_by_one(quotas: Quotas, harness: Harness) -> None:
    await quotas.pause("calls", QUOTA, 30)
    assert await seconds_to_wait(quotas, most=29.0) == pytest.approx(30)
    harness.time += 10
    assert await waits(quotas, 3) == pytest.approx([20, 22, 24])


async def test_holding_off_a_little_takes_back_nothing_of_a_longer_time(quotas: Quotas) -> None:
    await waits(quotas, 8)
    await quotas.pause("calls", QUOTA, 30)
    await quotas.pause("calls", QUOTA, 1)
    assert await waits(quotas, 1) == pytest.approx([30])


async def test_no_minute_has_more_than_the_quota_however_they_come(quotas: Quotas, harness: Harness) -> None:
    chance = random.Random(5)
    times = []
    for _ in range(250):
        harness.time += chance.choice((0.0, 0.0, 0.5, 2.0, 11.0))
        answer = await quotas.acquire("calls", QUOTA, 20.0)
        if isinstance(answer, QuotaGranted):
            times.append(harness.time + answer.wait)
    assert len(times) > 150
    assert max(sum(at <= each < at + 60 for each in times) for at in times) <= A_MINUTE


async def test_many_connections_at_once_get_no_more_than_one_would(postgres: Server) -> None:
    first = PostgresHarness(await asyncio.to_thread(postgres.fresh, virtual_clock=True))
    processes = [first, *(first.another_process() for _ in range(4))]
    try:
        shared = [SqlQuotas(process.database) for process in processes]
        answers = await asyncio.gather(*(quotas.acquire("calls", QUOTA, 20.0) for quotas in shared * 10))
        granted = sorted(answer.wait for answer in answers if isinstance(answer, QuotaGranted))
        # Each place was granted to one of fifty requests. The rejected requests would wait longer than all of them.
        assert granted == pytest.approx([0.0] * 5 + [2.0 * place for place in range(1, 11)])
        late = [answer.wait for answer in answers if isinstance(answer, QuotaExceeded)]
        assert late == pytest.approx([22.0] * 35)
    finally:
        for process in processes:
            await process.close()


async def test_on_the_servers_own_clock_many_connections_keep_the_quota(postgres: Server) -> None:
    address = await asyncio.to_thread(postgres.fresh)
    processes = [PostgresDatabase(PostgresServer(address)) for _ in range(4)]
    quota, loop = Quota(at_once=10, interval=0.05), asyncio.get_running_loop()
    began, ended = list[float](), list[float]()

    async def go_on(quotas: Quotas) -> None:
        while loop.time() < until:
            before = loop.time()
            if isinstance(await quotas.acquire("calls", quota, 0.0), QuotaGranted):
                began.append(before)
                ended.append(loop.time())

    until = loop.time() + 1
    try:
        async with asyncio.TaskGroup() as group:
            for process in processes * 4:
                group.create_task(go_on(SqlQuotas(process)))
        # Requests granted between two moments were also sent and answered between them.
        for start in began:
            inside = sum(before >= start and after <= start + 0.5 for before, after in zip(began, ended, strict=True))
            assert inside <= 10 + 10
        assert len(began) > 10
    finally:
        for process in processes:
            await process.close()


async def test_full_quotas_are_forgotten_and_no_others(quotas: Quotas, harness: Harness) -> None:
    await waits(quotas, 1, name="quiet")
    await waits(quotas, 3, name="idle")
    harness.time += 3
    await waits(quotas, 8, name="busy")
    await quotas.pause("closed", QUOTA, 60)
    assert await quotas.forget_idle(100) == 1
    harness.time += 5
    assert await quotas.forget_idle(100) == 1
    assert await quotas.forget_idle(100) == 0
    assert await waits(quotas, 1, name="busy") == pytest.approx([3])
    assert await waits(quotas, 1, name="idle") == [0]


async def test_so_many_are_forgotten_at_once(quotas: Quotas, harness: Harness) -> None:
    for name in "abc":
        await waits(quotas, 1, name=name)
    harness.time += 60
    assert [await quotas.forget_idle(2) for _ in range(3)] == [2, 1, 0]
