"""Contract of stored faults (`bot.ports.FaultStore`), on each database."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.domain.health import Fault, FaultKind, FaultRecord
from bot.ports import FaultStore
from bot.storage.coordination import KEPT_SECONDS, QUIET_SECONDS, SqlFaultStore
from tests.turn_log_harness import Harness

SECONDS = 90.0
WEATHER = Fault("server:weather", FaultKind.SERVER_FAILED, "weather does not answer", "weather answers again")


@pytest.fixture
def store(harness: Harness) -> FaultStore:
    return SqlFaultStore(harness.database)


async def deliver_fault(store: FaultStore, ref: str = "C1:1.0") -> FaultRecord:
    """Deliver the only undelivered fault. Return its record."""
    (record,) = await store.undelivered_faults()
    await store.begin_message(record)
    await store.record_message(record, record.ref or ref)
    return record


async def test_a_fault_is_delivered_once_however_often_it_is_reported(store: FaultStore) -> None:
    for _ in range(3):
        await store.report(WEATHER, "one", SECONDS)
    record = await deliver_fault(store)
    assert (record.fault, record.closed_at, record.occurrences) == (WEATHER, None, 1)
    await store.report(WEATHER, "two", SECONDS)
    assert await store.undelivered_faults() == []


async def test_another_cause_is_delivered_in_the_same_message(store: FaultStore) -> None:
    await store.report(WEATHER, "one", SECONDS)
    await deliver_fault(store)
    await store.report(replace(WEATHER, cause="It refuses connections."), "one", SECONDS)
    record = await deliver_fault(store)
    assert (record.fault.cause, record.ref, record.message) == ("It refuses connections.", "C1:1.0", 1)


async def test_a_fault_is_over_when_its_last_reporter_withdraws_it(store: FaultStore, harness: Harness) -> None:
    for reporter in ("one", "two"):
        await store.report(WEATHER, reporter, SECONDS)
    await deliver_fault(store)
    await store.withdraw(WEATHER.key, "one")
    assert await store.undelivered_faults() == []
    harness.time += 60
    await store.withdraw(WEATHER.key, "two")
    record = await deliver_fault(store)
    assert record.closed_at == pytest.approx(record.opened_at + 60, abs=5)
    assert record.ref == "C1:1.0"


async def test_a_fault_is_over_when_its_reporter_has_vanished(store: FaultStore, harness: Harness) -> None:
    await store.report(WEATHER, "one", SECONDS)
    await deliver_fault(store)
    harness.time += SECONDS - 10
    await store.close_unreported()
    assert await store.undelivered_faults() == []
    harness.time += 20
    await store.close_unreported()
    assert (await deliver_fault(store)).closed_at is not None


async def test_an_open_fault_can_be_kept_open_without_being_opened(store: FaultStore, harness: Harness) -> None:
    await store.extend(WEATHER.key, "one", SECONDS)
    assert await store.undelivered_faults() == []
    await store.report(WEATHER, "one", SECONDS)
    await deliver_fault(store)
    harness.time += SECONDS - 10
    await store.extend(WEATHER.key, "two", SECONDS)
    harness.time += 20
    await store.close_unreported()
    assert await store.undelivered_faults() == []
    await store.withdraw(WEATHER.key, "two")
    await deliver_fault(store)
    await store.extend(WEATHER.key, "two", SECONDS)
    assert await store.undelivered_faults() == []


async def test_a_fault_that_returns_within_an_hour_is_counted_in_its_message(
    store: FaultStore, harness: Harness
) -> None:
    for times in (1, 2, 3):
        await store.report(WEATHER, "one", SECONDS)
        record = await deliver_fault(store)
        assert (record.message, record.occurrences) == (1, times)
        assert (record.ref == "") is (times == 1)
        harness.time += 60
        await store.withdraw(WEATHER.key, "one")
        await deliver_fault(store)


async def test_a_fault_that_returns_after_an_hour_gets_another_message(store: FaultStore, harness: Harness) -> None:
    await store.report(WEATHER, "one", SECONDS)
    await deliver_fault(store)
    await store.withdraw(WEATHER.key, "one")
    await deliver_fault(store)
    harness.time += QUIET_SECONDS + 1
    await store.report(WEATHER, "one", SECONDS)
    record = await deliver_fault(store, "C1:2.0")
    assert (record.message, record.occurrences, record.ref, record.is_attempted) == (2, 1, "", False)


async def test_a_post_that_was_begun_is_known_to_the_next_process(store: FaultStore) -> None:
    await store.report(WEATHER, "one", SECONDS)
    (record,) = await store.undelivered_faults()
    assert not record.is_attempted
    await store.begin_message(record)
    (record,) = await store.undelivered_faults()
    assert record.is_attempted


async def test_a_change_during_the_delivery_is_delivered_next(store: FaultStore) -> None:
    await store.report(WEATHER, "one", SECONDS)
    (record,) = await store.undelivered_faults()
    await store.withdraw(WEATHER.key, "one")
    await store.record_message(record, "C1:1.0")
    (record,) = await store.undelivered_faults()
    assert record.closed_at is not None
    assert record.ref == "C1:1.0"


async def test_an_old_fault_is_deleted(store: FaultStore, harness: Harness) -> None:
    await store.report(WEATHER, "one", SECONDS)
    await store.withdraw(WEATHER.key, "one")
    harness.time += KEPT_SECONDS + 1
    await store.close_unreported()
    assert await store.undelivered_faults() == []


async def test_many_processes_that_report_one_fault_at_once_open_it_once(store: FaultStore) -> None:
    await asyncio.gather(*(store.report(WEATHER, str(number), SECONDS) for number in range(8)))
    assert (await deliver_fault(store)).occurrences == 1
