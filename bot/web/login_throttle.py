"""Throttle of failed logins by address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_MOST_ADDRESSES = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class LoginThrottle:
    """Token bucket per address, in memory: `at_once` failures after a quiet time, and one more every `seconds`. The
    addresses with the oldest failures are dropped first. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        at_once: int = 10,
        seconds: float = 6.0,
        clock: Callable[[], float] = time.monotonic,
        most: int = _MOST_ADDRESSES,
    ) -> None:
        self._at_once = at_once
        self._seconds = seconds
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def failed(self, address: str) -> float:
        """Count a failure. Return 0 if it is within the limit, else the seconds until the next attempt is accepted."""
        now = self._clock()
        bucket = self._buckets.setdefault(address, _Bucket(self._at_once, now))
        self._buckets.move_to_end(address)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        bucket.left = min(self._at_once, bucket.left + (now - bucket.at) / self._seconds)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) * self._seconds
        bucket.left -= 1
        return 0.0
