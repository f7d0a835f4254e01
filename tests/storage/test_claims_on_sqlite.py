"""Order of claims and of arriving messages on SQLite, where the process that receives a message runs its turn."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import sqlalchemy as sa

from tests.fakes.parts import message
from tests.turn_log_harness import sqlite_harness


async def test_a_poll_that_waits_for_the_database_claims_no_turn_that_is_claimed_with_its_message(
    tmp_path: Path,
) -> None:
    harness = await sqlite_harness(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def block(_connection: sa.Connection) -> None:
        begun.set()
        go_on.wait(10)

    blocking = asyncio.create_task(harness.database.run(block))
    assert await asyncio.to_thread(begun.wait, 10)
    polling = asyncio.create_task(harness.log.claim(8))
    await asyncio.sleep(0)
    receiving = asyncio.create_task(harness.log.enqueue_and_claim(message("hi")))
    await asyncio.sleep(0)
    go_on.set()
    _, claim = await receiving
    assert claim is not None
    assert not await polling
    await blocking
    await harness.database.close()
