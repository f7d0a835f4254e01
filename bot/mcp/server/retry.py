"""Reconnects: timing, pauses between attempts, the circuit breaker and the limit of concurrent starts.

The breaker opens after several failures in a short time. While it is open, calls do not connect and the server's tools
are not offered. After its pause one attempt decides. Planned reconnects do not use it: their pauses come from
`ReconnectBackoff`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

_MOST_DOUBLINGS = 16
_SPREAD = 0.25
"""Largest part by which a pause is longer or shorter than planned."""
SIGN_IN_PAUSE = 900.0
"""Seconds between attempts at a server that rejects the credentials. Long, because these attempts have no limit."""
STEADY_SECONDS = 30.0
"""A connection that lived this long resets the failures."""


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
        self._failed_openings = 0
        self._failed_until = self._lost_until = self._held_until = -math.inf

    @property
    def left(self) -> float:
        """Seconds until it closes: 0 if it is closed, infinite if only a reset closes it."""
        return max(0.0, max(self._failed_until, self._lost_until, self._held_until) - self._clock())

    @property
    def is_held(self) -> bool:
        """True while the server asks to be left alone."""
        return self._held_until > self._clock()

    def hold(self, seconds: float) -> None:
        """Open it for the time that the server asks to be left alone."""
        self._held_until = self._clock() + seconds

    def record_failure(self) -> None:
        """Record a failed attempt to connect. After an open time one failure opens it again."""
        now = self._clock()
        self._failures.append(now)
        if self._failed_openings or _close_together(self._failures, now - self._tripping.failures_within):
            doubled = self._tripping.pause * 2 ** min(self._failed_openings, _MOST_DOUBLINGS)
            self._failed_until = now + min(doubled, self._tripping.longest_pause)
            self._failed_openings += 1

    def record_loss(self) -> None:
        """Record the loss of an established connection."""
        now = self._clock()
        self._losses.append(now)
        if _close_together(self._losses, now - self._tripping.losses_within):
            self._lost_until = now + self._tripping.loss_pause

    def record_success(self) -> None:
        """Record a successful connection. Earlier losses still count, because each began with one."""
        self._failures.clear()
        self._failed_openings = 0
        self._failed_until = self._held_until = -math.inf

    def reset(self) -> None:
        """Close it, without regard to earlier failures."""
        self.record_success()
        self._losses.clear()
        self._lost_until = -math.inf


class CallBreaker(CircuitBreaker):
    """Breaker of a connected server that answers calls with HTTP errors of its own, or breaks their connections. After
    each of them the server is doubted for a while, longer after each further one.
    """

    def __init__(self, timing: ConnectionTiming, clock: Callable[[], float]) -> None:
        timing = timing.reconnecting or timing
        super().__init__(timing.tripping, clock)
        self._retries = timing.retries
        self._errors = 0
        self._doubted_until = -math.inf

    @property
    def is_doubted(self) -> bool:
        """True while another server should be preferred."""
        return bool(self.left) or self._doubted_until > self._clock()

    def record_failure(self) -> None:
        """Record an error. Those of calls that were under way when it opened do not count."""
        if self.left:
            return
        super().record_failure()
        self._errors += self._doubted_until <= self._clock()
        self._doubted_until = self._clock() + self._retries.pause(self._errors, 0.5)

    def record_success(self) -> None:
        """Record a call that was answered."""
        super().record_success()
        self._errors, self._doubted_until = 0, -math.inf


def _close_together(times: deque[float], since: float) -> bool:
    return len(times) == times.maxlen and times[0] >= since


@dataclass(frozen=True, slots=True)
class RetryTiming:
    """Times of reconnects in seconds.

    `first_pause`, `factor`, `longest_pause`: pauses between attempts of 5, 10, 20, 40, 60, 60 ..., each up to a quarter
    more or less. `tries`: maximum number of failed attempts in a row; after that each use starts one attempt.
    `quick_pause`: before the first attempt after a lost connection. `minimum_pause`: minimum pause when a call waits.
    """

    first_pause: float = 5.0
    factor: float = 2.0
    longest_pause: float = 60.0
    tries: int = 5
    quick_pause: float = 0.2
    minimum_pause: float = 1.0

    def pause(self, failures: int, chance: float) -> float:
        """Return the pause after `failures` failures in a row, at least 1. `chance` is a random number in [0, 1)."""
        # The longest pause is reached long before 64 doublings; a float overflows at 1,024.
        planned = min(self.first_pause * self.factor ** min(failures - 1, 64), self.longest_pause)
        return planned * (1 + _SPREAD * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class WaitTiming:
    """Limits of waits in seconds.

    `call_wait`: how long a call waits for a connection in progress. `settle`, `apart`: changed capabilities are listed
    when the server has been quiet for the first, and at least the second after the last listing. `confirm`: timeout for
    confirming the tools before an approved call is sent. `look_again`: time after a failure until a question starts an
    attempt at a server whose tools are not known, and `look_limit`: how long it waits for it. `start_slot`: how long a
    starting server delays the start of others, if there are many. `farewell`: maximum wait for running calls when a
    connection is closed. `leave`: time that a process has to end by itself, and again after SIGTERM.
    """

    call_wait: float = 5.0
    settle: float = 0.3
    apart: float = 5.0
    confirm: float = 5.0
    look_again: float = 5.0
    look_limit: float = 2.0
    start_slot: float = 2.0
    farewell: float = 10.0
    leave: float = 2.0


@dataclass(frozen=True, slots=True)
class ConnectionTiming:
    """Times of a connection in seconds.

    `idle_after`: an unused connection is closed after this time; None means never. `quiet_after`, `quiet_limit`: an
    unused server is pinged after the first, with the second as timeout; None means no pings. `tripping`: settings of
    the circuit breaker. `reconnecting` are the times of servers that reconnect although the others do not.
    """

    retries: RetryTiming = RetryTiming()
    waits: WaitTiming = WaitTiming()
    idle_after: float | None = 1800.0
    quiet_after: float | None = 60.0
    quiet_limit: float = 15.0
    tripping: BreakerSettings = BreakerSettings()
    reconnecting: ConnectionTiming | None = None

    def without_reconnecting(self) -> ConnectionTiming:
        """Return the same times without reconnects: after a failure an admin has to connect the server."""
        if self.reconnecting:
            return self
        return replace(self, retries=replace(self.retries, tries=0), tripping=AT_ONCE, reconnecting=self)

    def for_server(self, reconnect: bool | None) -> ConnectionTiming:
        """Return the times of a server that is to reconnect, or not; None if it does as all others."""
        if reconnect is None:
            return self
        return (self.reconnecting or self) if reconnect else self.without_reconnecting()


class ReconnectBackoff:
    """Pauses before the next attempt, in seconds; None means no attempt before the next use. `chance` returns random
    numbers in [0, 1).
    """

    def __init__(self, timing: RetryTiming, chance: Callable[[], float]) -> None:
        self._timing = timing
        self._chance = chance
        self._failures = 0

    def failure_pause(self, *, known: bool = True) -> float | None:
        """Return the pause after a failed attempt to connect. Attempts at a server whose tools are not `known` have no
        limit, because nothing would use it; None without reconnects.
        """
        self._failures += 1
        if known:
            return self._next_pause(self._failures)
        return self._timing.pause(self._failures, self._chance()) if self._timing.tries else None

    @property
    def is_exhausted(self) -> bool:
        """True if more attempts in a row have failed than the limit allows, even if further ones are planned."""
        return self._failures > self._timing.tries

    def loss_pause(self, lifetime: float) -> float | None:
        """Return the pause after the loss of a connection after `lifetime` seconds. A long life resets the failures,
        and the first attempt after it is immediate.
        """
        self._failures = 0 if lifetime >= STEADY_SECONDS else self._failures + 1
        if self._failures <= 1 and self._timing.tries:
            return self._timing.quick_pause
        return self._next_pause(max(1, self._failures - 1))

    def reset(self) -> None:
        """Reset the failures."""
        self._failures = 0

    def _next_pause(self, failures: int) -> float | None:
        return None if failures > self._timing.tries else self._timing.pause(failures, self._chance())


class StartLimiter:
    """Limiter of servers that start at the same time. A slot is released after some time at the latest, so that silent
    servers block no others.
    """

    def __init__(self, at_once: int = 4) -> None:
        self._slots = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def acquire(self, seconds: float) -> AsyncIterator[Callable[[], None]]:
        """Wait for a slot. It is released at the end of the block, by calling the yielded function, or after
        `seconds`.
        """
        await self._slots.acquire()
        holds_slot = True

        def release() -> None:
            nonlocal holds_slot
            if holds_slot:
                holds_slot = False
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(seconds, release)
        try:
            yield release
        finally:
            timer.cancel()
            release()
