"""One limit: what this process has let through, and what it was told of the others.

Used by `pacing.py`, which knows Slack's limits. Must not know what is called, and waits for nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from bot.ports import Quota


@dataclass(frozen=True, slots=True)
class _Told:
    """So many turns there were, or will be, for all processes together at a time."""

    left: float
    at: float


@dataclass(slots=True)
class RateWindow:
    """At most `count` calls in any `period` seconds, as far as this process knows; `quota` is what all processes keep
    instead while they can ask each other. `reserve` is the part that is kept for what must get out.
    """

    name: str
    count: int
    period: float
    quota: Quota
    reserve: float
    _taken: deque[float] = field(default_factory=deque)
    _closed_until: float = 0.0
    _told: _Told | None = None

    def opens(self, now: float) -> float:
        """The earliest time for one more call."""
        earliest = max(now, self._closed_until)
        if len(self._taken) >= self.count:
            earliest = max(earliest, self._taken[-self.count] + self.period)
        return earliest

    def take(self, at: float) -> None:
        """A call is let through at that time."""
        self._taken.append(at)
        while len(self._taken) > self.count:
            self._taken.popleft()

    def close(self, until: float) -> None:
        """Nothing goes through before that time."""
        self._closed_until = max(self._closed_until, until)
        self.record_retry_after(1.0, self._closed_until)

    def closed(self, now: float) -> float:
        """Seconds for which nothing goes through."""
        return max(self._closed_until - now, 0.0)

    def record_retry_after(self, left: float, at: float) -> None:
        """So many turns all processes have left at that time."""
        self._told = _Told(left, at)

    def has_headroom(self, now: float) -> bool:
        """Whether a call could be made now, and the reserve be left, were there no other process."""
        used = sum(at > now - self.period for at in self._taken)
        return self.opens(now) <= now and used < self.count * (1 - self.reserve)

    def spare_for_all(self, now: float) -> bool:
        """The same of all processes together, by what was told last and the time since."""
        if self._told is None:
            return True
        left = min(self._told.left + (now - self._told.at) / self.quota.interval, float(self.quota.at_once))
        return left >= 1 + self.quota.at_once * self.reserve
