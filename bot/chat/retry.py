"""Retries while a platform is unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bot.errors import DeliveryFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


async def retry_until_available(ask: Callable[[], Awaitable[T]], whom: str) -> T:
    """Return the platform's response, retrying without end while it is unavailable. The pause between attempts is the
    platform's `retry_after`, or doubles up to LONGEST_PAUSE seconds. Raises DeliveryFailed for permanent errors.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return await ask()
        except DeliveryFailed as failure:
            if failure.permanent:
                raise
            log.warning("%s cannot be reached yet: %s", whom, failure)
            await asyncio.sleep(failure.retry_after if failure.retry_after is not None else pause)
            pause = min(2 * pause, LONGEST_PAUSE)
