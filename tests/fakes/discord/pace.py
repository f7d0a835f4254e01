"""Rate limits of the API: a bucket per route and place, and fifty calls a second in all."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.fakes.clock import Clock

PER_BUCKET: dict[str, tuple[int, float]] = {
    "POST /channels/{channel}/messages": (5, 5),
    "PATCH /channels/{channel}/messages/{message}": (5, 5),
    "DELETE /channels/{channel}/messages/{message}": (5, 1),
    "POST /channels/{channel}/typing": (5, 5),
    "POST /webhooks/{application}/{token}": (5, 2),
    "PATCH /webhooks/{application}/{token}/messages/{message}": (5, 2),
}
"""Calls and seconds of observed buckets; Discord does not document them."""
ELSEWHERE = (50, 1.0)


@dataclass(frozen=True)
class Granted:
    """The state of a bucket after a call; `wait` is 0 if the call was granted."""

    bucket: str
    limit: int
    remaining: int
    reset_after: float
    reset: float
    wait: float = 0.0
    everywhere: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Headers that Discord sends along."""
        headers = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": f"{_up(self.reset):.3f}",
            "X-RateLimit-Reset-After": f"{_up(self.reset_after):.3f}",
            "X-RateLimit-Bucket": self.bucket,
        }
        if self.wait:
            headers |= {"X-RateLimit-Scope": "global" if self.everywhere else "user"}
        return headers | ({"X-RateLimit-Global": "true"} if self.everywhere else {})


def _up(seconds: float) -> float:
    """Round up to milliseconds, so that a client never waits too briefly."""
    return math.ceil(seconds * 1000) / 1000


@dataclass
class Pace:
    """Fixed windows per bucket, as Discord has them. With `strict` False, all calls pass and no headers are sent."""

    clock: Clock
    strict: bool = True
    per_bucket: dict[str, tuple[int, float]] = field(default_factory=lambda: dict(PER_BUCKET))
    a_second: int = 50
    _windows: dict[str, tuple[float, int]] = field(default_factory=dict)
    _all: deque[float] = field(default_factory=deque)
    _old_edits: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def grant(self, route: str, major: str, *, counts: bool) -> Granted | None:
        """Count a call. `major` is the bucket's channel, guild or token; `counts` adds it to the fifty a second.

        Returns:
            The bucket, with the seconds to wait if the call is refused; None if the pace is not strict.
        """
        if not self.strict:
            return None
        now = self.clock.now()
        while self._all and self._all[0] <= now - 1:
            self._all.popleft()
        bucket = hashlib.md5(route.encode(), usedforsecurity=False).hexdigest()
        limit, seconds = self.per_bucket.get(route, ELSEWHERE)
        since, used = self._windows.get(f"{route} {major}", (now, 0))
        if now >= since + seconds:
            since, used = now, 0
        after = since + seconds - now
        if counts and len(self._all) >= self.a_second:
            wait = max(0.001, self._all[0] + 1 - now)
            return Granted(bucket, limit, limit - used, wait, now + wait, _up(wait), everywhere=True)
        if used >= limit:
            return Granted(bucket, limit, 0, after, since + seconds, _up(max(0.001, after)))
        self._windows[f"{route} {major}"] = (since, used + 1)
        if counts:
            self._all.append(now)
        return Granted(bucket, limit, limit - used - 1, after, since + seconds)

    def old_edit(self, channel: str, most: int, window: float) -> float:
        """Seconds to wait before this channel takes one more edit of an old message; 0 grants and counts it."""
        now, edits = self.clock.now(), self._old_edits[channel]
        while edits and edits[0] <= now - window:
            edits.popleft()
        if len(edits) >= most:
            return max(0.05, edits[0] + window - now) if edits else window
        edits.append(now)
        return 0
