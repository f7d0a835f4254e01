"""Lag of the event loop: the delay between the due time and the wakeup of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from bot.domain.metrics import LoopLagged, MetricSink

SECONDS = 0.5


async def watch_loop(
    observe: MetricSink,
    *,
    seconds: float = SECONDS,
    clock: Callable[[], float] = monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Measure every `seconds`, until cancelled."""
    while True:
        due = clock() + seconds
        await pause(seconds)
        observe(LoopLagged(max(0.0, clock() - due)))
