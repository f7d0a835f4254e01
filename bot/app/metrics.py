"""What an operator sees from outside: measurements, kept while the program runs, and the routes where they are read."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.app.runtime import Runtime

if TYPE_CHECKING:
    from bot.web.application import Page
    from bot.web.prometheus import Metrics


async def open_metrics() -> Metrics:
    """What counts in this process. Nobody is asked for anything before `probe_routes`."""
    module = await asyncio.to_thread(importlib.import_module, "bot.web.prometheus")
    metrics: Metrics = module.Metrics()
    return metrics


@asynccontextmanager
async def probe_routes(metrics: Metrics, house: Runtime) -> AsyncIterator[list[Page]]:
    """The routes of health and metrics, which take no token. For as long as the block runs, the event loop is
    watched.
    """
    health, lag = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.web.{name}") for name in ("health", "loop_lag"))
    )
    office = house.office
    metrics.look_at(office.stores.archive.backlog, office.toolbox.servers, office.takes_writes)
    watching = asyncio.create_task(lag.watch_loop(metrics.observe), name="loop lag")
    try:
        yield [*health.ready_routes(office.health.look), metrics.route()]
    finally:
        watching.cancel()
        await asyncio.wait({watching})
