"""Per-user limits: of concurrent work (`PerUserLimit`), and of calls in a period (`PerUserRate`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic


class PerUserLimit:
    """Concurrency limit: at most `most` units of work at a time for each user. Call `release` for each acquired one in
    any case.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: dict[str, int] = {}

    def acquire(self, user: str) -> bool:
        """Count one more. Return False, with nothing counted, if the user has `most` under way."""
        count = self._under_way.get(user, 0)
        if count >= self._most:
            return False
        self._under_way[user] = count + 1
        return True

    def release(self, user: str) -> None:
        """Count one less."""
        count = self._under_way[user] - 1
        if count:
            self._under_way[user] = count
        else:
            del self._under_way[user]


class PerUserRate:
    """Counts the calls of each user in the last `seconds`; at most `most`."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}

    def acquire(self, user: str) -> bool:
        """Count one more call. Return False, with nothing counted, if the user has made `most` of them."""
        now = self._clock()
        # Of users who have made none for long nothing is kept: the one with the oldest last call comes first.
        while self._calls and (oldest := next(iter(self._calls))) and self._calls[oldest][-1] <= now - self._seconds:
            del self._calls[oldest]
        calls = self._calls.get(user, deque())
        while calls and calls[0] <= now - self._seconds:
            calls.popleft()
        if len(calls) >= self._most:
            return False
        calls.append(now)
        self._calls.pop(user, None)
        self._calls[user] = calls
        return True
