"""Circuit breaker of one server that keeps failing.

It opens after several failures in a short time. While it is open, calls do not connect and the server's tools are not
offered. After the pause one attempt decides. Planned reconnects do not use it: their pauses come from
`ReconnectBackoff`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Thresholds of a breaker, times in seconds.

    `failures`, `failures_within`, `pause`, `longest_pause`: this number of failed attempts within that time opens it,
    for `pause` at first and twice as long after each further failure. `losses`, `losses_within`, `loss_pause`: the same
    for connections that were made and then lost.
    """

    failures: int = 3
    failures_within: float = 120.0
    pause: float = 30.0
    longest_pause: float = 300.0
    losses: int = 7
    losses_within: float = 45.0
    loss_pause: float = 15.0


AT_ONCE = BreakerSettings(failures=1, pause=math.inf, longest_pause=math.inf, losses=1, loss_pause=math.inf)
"""Settings that open at the first failure, until a reset."""


class CircuitBreaker:
    """Breaker of one server, closed at first. `clock` is in seconds."""

    def __init__(self, tripping: BreakerSettings, clock: Callable[[], float]) -> None:
        self._tripping = tripping
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=tripping.failures)
        self._losses: deque[float] = deque(maxlen=tripping.losses)
        self._in_vain = 0
        self._failed_until = self._lost_until = -math.inf

    @property
    def left(self) -> float:
        """Seconds until it closes: 0 if it is closed, infinite if only a reset closes it."""
        return max(0.0, max(self._failed_until, self._lost_until) - self._clock())

    def failed(self) -> None:
        """Record a failed attempt to connect. After an open time one failure opens it again."""
        now = self._clock()
        self._failures.append(now)
        if self._in_vain or _close_together(self._failures, now - self._tripping.failures_within):
            doubled = self._tripping.pause * 2 ** min(self._in_vain, _MOST_DOUBLINGS)
            self._failed_until = now + min(doubled, self._tripping.longest_pause)
            self._in_vain += 1

    def lost(self) -> None:
        """Record the loss of an established connection."""
        now = self._clock()
        self._losses.append(now)
        if _close_together(self._losses, now - self._tripping.losses_within):
            self._lost_until = now + self._tripping.loss_pause

    def works(self) -> None:
        """Record a successful connection. Earlier losses still count, because each began with one."""
        self._failures.clear()
        self._in_vain = 0
        self._failed_until = -math.inf

    def reset(self) -> None:
        """Close it, without regard to earlier failures."""
        self.works()
        self._losses.clear()
        self._lost_until = -math.inf


def _close_together(times: deque[float], since: float) -> bool:
    return len(times) == times.maxlen and times[0] >= since
