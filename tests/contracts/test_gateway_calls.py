"""Contract of calls that other agents ask for (`bot.ports.GatewayCallStore`), on each database."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from bot.domain.gateway import KEYED, GatewayRecord
from bot.errors import SecretUnavailable
from bot.ports import GatewayCallStore
from bot.storage.admin.gateway_calls import SqlGatewayCallStore
from bot.storage.admin.receipt_keys import SqlReceiptKeyStore, read_encrypted_receipt_keys
from bot.storage.encryption import generate_key, make_box
from bot.storage.tables import turns
from tests.fakes.parts import message
from tests.turn_log_harness import Harness

CALL = GatewayRecord("c1", "ci", 1.5, "digest", "same", "api:w refund:42")


@pytest.fixture
def store(harness: Harness) -> GatewayCallStore:
    return SqlGatewayCallStore(harness.database)


async def test_the_first_of_concurrent_calls_with_one_key_is_stored(store: GatewayCallStore) -> None:
    calls = [replace(CALL, id=str(n), effect=None) for n in range(5)]
    stored = await asyncio.gather(*(store.add(call) for call in calls))
    assert len({call.id for call in stored}) == 1
    assert await store.find(stored[0].id) == stored[0]
    assert await store.find("other") is None


async def test_an_effect_has_one_open_call(store: GatewayCallStore) -> None:
    assert await store.add(CALL) == CALL
    other = replace(CALL, id="c2", attach_key="another")
    assert await store.add(other) == CALL
    assert await store.add(replace(other, effect="api:w refund:43")) == replace(other, effect="api:w refund:43")
    await store.release(CALL.id)
    assert (await store.add(replace(other, id="c3", attach_key="third"))).id == "c3"


async def test_a_released_call_is_attached_to_by_its_idempotency_key_alone(store: GatewayCallStore) -> None:
    keyed = replace(CALL, id="c2", attach_key=f"{KEYED}1", effect=None)
    await store.add(CALL)
    await store.add(keyed)
    assert await store.release("c1")
    assert not await store.release("c1")
    assert not await store.release("c2")
    assert (await store.add(replace(CALL, id="c3"))).id == "c3"
    assert (await store.add(replace(keyed, id="c4"))).id == "c2"


async def test_a_call_is_deleted_with_its_turn(harness: Harness, store: GatewayCallStore) -> None:
    receipt = await harness.log.enqueue(message("run"))
    await store.add(CALL)
    await store.save_turn(CALL.id, receipt.turn_id)
    assert await store.find(CALL.id) == replace(CALL, turn_id=receipt.turn_id)
    await harness.database.run(lambda connection: connection.execute(sa.delete(turns)))
    assert await store.find(CALL.id) is None


async def test_the_first_of_concurrent_keys_with_one_number_is_stored_encrypted(harness: Harness) -> None:
    key = generate_key()
    store = SqlReceiptKeyStore(harness.database, make_box(key))
    stored = await asyncio.gather(*(store.add(1, f"public {n}", f"private {n}") for n in range(3)))
    assert {each.public for each in stored} == {stored[0].public}
    assert [each.number for each in await store.keys()] == [1]
    assert await store.open_private(1) == stored[0].public.replace("public", "private")
    (row,) = await harness.database.run(read_encrypted_receipt_keys)
    assert "private" not in row.ciphertext
    with pytest.raises(SecretUnavailable):
        await SqlReceiptKeyStore(harness.database, make_box(generate_key())).open_private(1)
