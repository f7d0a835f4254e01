from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.postgres import Server
from tests.turn_log_harness import Harness, PostgresHarness, sqlite_harness


@pytest.fixture(params=["sqlite", "postgresql"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    """Yield a turn log on each database."""
    harness: Harness
    if request.param == "sqlite":
        harness = await sqlite_harness(tmp_path)
    else:
        postgres: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
        harness = PostgresHarness(await asyncio.to_thread(postgres.fresh, virtual_clock=True))
    yield harness
    await harness.close()
