"""`countersign run`: every part that is configured, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal

from bot.app.database import held_database
from bot.app.house import opened_house
from bot.app.models import choose_model
from bot.app.operator_files import read_operator_files
from bot.errors import SettingsError
from bot.logs import log_to_stderr
from bot.settings import Settings

log = logging.getLogger(__name__)

PARTS = ("slack", "discord", "worker", "web")
AVAILABLE = frozenset({"worker"})


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the parts named, or all that are configured, until SIGTERM or SIGINT. Raises CountersignError."""
    _check(only)
    log_to_stderr(settings.log_level, settings.log_format)
    choice = choose_model(settings)
    files = read_operator_files(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    with held_database(settings, "countersign run"):
        async with opened_house(settings, files, choice, []) as house:
            log.info("worker running on model %s; no chat platform is configured", choice.label)
            await house.until(stopped)
            log.info("stopping")
    return 0


def _check(only: frozenset[str]) -> None:
    """Raise SettingsError that names every part which cannot be run."""
    wrong = [f"There is no part called {part!r}." for part in sorted(only.difference(PARTS))]
    wrong += [f"The part {part!r} is not in this release." for part in PARTS if part in only - AVAILABLE]
    if wrong:
        raise SettingsError(" ".join(wrong), f"use --only {','.join(sorted(AVAILABLE))}")
