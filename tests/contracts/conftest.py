from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.ledgers import Ledger, PostgresLedger, sqlite_ledger
from tests.postgres import Server


@pytest.fixture(params=["sqlite", "postgresql"])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    """A turn log on each database."""
    ledger: Ledger
    if request.param == "sqlite":
        ledger = await sqlite_ledger(tmp_path)
    else:
        postgres: Server = await asyncio.to_thread(request.getfixturevalue, "postgres")
        ledger = PostgresLedger(await asyncio.to_thread(postgres.fresh, virtual_clock=True))
    yield ledger
    await ledger.close()
