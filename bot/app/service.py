"""`countersign run`: every part that is configured, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal

from bot.app.house import opened_house
from bot.app.models import choose_model
from bot.errors import SettingsError
from bot.logs import log_to_stderr
from bot.settings import Settings
from bot.storage.address import sqlite_path
from bot.storage.lock_file import LockFile

log = logging.getLogger(__name__)

PARTS = ("slack", "discord", "worker", "web")
AVAILABLE = frozenset({"worker"})


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the parts named, or all that are configured, until SIGTERM or SIGINT. Raises CountersignError."""
    for part in sorted(only - AVAILABLE):
        known = part in PARTS
        raise SettingsError(
            f"The part {part!r} is not in this release." if known else f"There is no part called {part!r}.",
            f"use --only {','.join(sorted(AVAILABLE))}",
        )
    log_to_stderr(settings.log_level, settings.log_format)
    choice = choose_model(settings)
    lock = LockFile(sqlite_path(settings.database_url))
    lock.acquire("countersign run")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    try:
        async with opened_house(settings, choice, []):
            log.info("worker running on model %s; no chat platform is configured", choice.label)
            await stopped.wait()
            log.info("stopping")
    finally:
        lock.release()
    return 0
