from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.postgres import Server
from tests.turn_log_harness import PostgresHarness


@pytest.fixture
async def harness(request: pytest.FixtureRequest) -> AsyncIterator[PostgresHarness]:
    """Yield a turn log on a fresh PostgreSQL database."""
    server: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
    harness = PostgresHarness(await asyncio.to_thread(server.fresh, virtual_clock=True))
    yield harness
    await harness.close()


@pytest.fixture
def no_deadlocks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check in the end that no transaction was cancelled because of a deadlock."""
    caplog.set_level("DEBUG", "bot.storage.database")
    yield
    assert "deadlock" not in caplog.text
