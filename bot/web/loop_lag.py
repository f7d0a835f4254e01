"""How late the event loop comes back to whoever waits: what everything else in the process waits for, too.

Run by the composition root for as long as the metrics are served.
"""

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
