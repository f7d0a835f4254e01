"""Whether a server that keeps failing is left alone for a while.

Every call that meets a server which is down could make it be tried at once, and a hundred calls would be a hundred
starts. The breaker of a `connection` stops that: it opens after failures close together, and while it is open no call
wants the server and none of its tools is offered. Then one try decides. Planned tries do not ask it: they are paced
by the `schedule`. Knows times and nothing else.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """What opens a breaker. All times are in seconds.

    `failures`, `failures_within`, `pause`, `longest_pause`: so many tries that failed within that time open it, for
    `pause` at first and twice as long each time it has opened in vain.
    `losses`, `losses_within`, `loss_pause`: the same for a server that can be connected to and does not stay.
    """

    failures: int = 3
    failures_within: float = 120.0
    pause: float = 30.0
    longest_pause: float = 300.0
    losses: int = 7
    losses_within: float = 45.0
    loss_pause: float = 15.0


AT_ONCE = BreakerSettings(failures=1, pause=math.inf, longest_pause=math.inf, losses=1, loss_pause=math.inf)
"""The first failure opens it, until somebody says otherwise."""


class CircuitBreaker:
    """The breaker of one server. It begins closed. `clock` is in seconds."""

    def __init__(self, tripping: BreakerSettings, clock: Callable[[], float]) -> None:
        self._tripping = tripping
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=tripping.failures)
        self._losses: deque[float] = deque(maxlen=tripping.losses)
        self._in_vain = 0
        self._failed_until = self._lost_until = -math.inf

    @property
    def left(self) -> float:
        """For how many seconds it stays open: nothing if it is closed, infinity if until it is reset."""
        return max(0.0, max(self._failed_until, self._lost_until) - self._clock())

    def failed(self) -> None:
        """The server could not be connected to. After an open time one failure is enough to open it again."""
        now = self._clock()
        self._failures.append(now)
        if self._in_vain or _close_together(self._failures, now - self._tripping.failures_within):
            doubled = self._tripping.pause * 2 ** min(self._in_vain, _MOST_DOUBLINGS)
            self._failed_until = now + min(doubled, self._tripping.longest_pause)
            self._in_vain += 1

    def lost(self) -> None:
        """A connection that had worked ended by itself."""
        now = self._clock()
        self._losses.append(now)
        if _close_together(self._losses, now - self._tripping.losses_within):
            self._lost_until = now + self._tripping.loss_pause

    def works(self) -> None:
        """The server is connected to. Its losses count on: they all began like this."""
        self._failures.clear()
        self._in_vain = 0
        self._failed_until = -math.inf

    def reset(self) -> None:
        """Somebody wants it tried, whatever has happened."""
        self.works()
        self._losses.clear()
        self._lost_until = -math.inf


def _close_together(times: deque[float], since: float) -> bool:
    return len(times) == times.maxlen and times[0] >= since
