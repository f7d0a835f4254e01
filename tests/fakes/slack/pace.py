"""Rate limits of methods: Slack's tiers per method and workspace, posting per channel."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.fakes.clock import Clock

PER_MINUTE = {"tier1": 10, "tier2": 20, "tier3": 50, "tier4": 100}
"""Calls a minute that are always granted; tiers by the names the method table uses.

Tier 1 is documented as one and more. Only apps.connections.open has it here, and an app may open ten connections.
"""


@dataclass
class Pace:
    """Windows of one minute per method and workspace, and one post a second per channel after a short burst.

    With `strict` False, all calls pass. A test may change `per_minute` and `burst`.
    """

    clock: Clock
    strict: bool = True
    per_minute: dict[str, int] = field(default_factory=lambda: dict(PER_MINUTE))
    burst: int = 5
    _calls: dict[tuple[str, str], deque[float]] = field(default_factory=lambda: defaultdict(deque))
    _credit: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def wait_for(self, team: str, method: str, tier: str) -> int:
        """Whole seconds to wait before this call is granted; 0 grants and counts it."""
        if not self.strict or tier not in self.per_minute:
            return 0
        now, calls = self.clock.now(), self._calls[team, method]
        while calls and calls[0] <= now - 60:
            calls.popleft()
        if len(calls) >= self.per_minute[tier]:
            return max(1, math.ceil(calls[0] + 60 - now))
        calls.append(now)
        return 0

    def wait_to_post(self, team: str, channel: str) -> int:
        """Return the same for a post in a channel: one a second, `burst` at once after a quiet time."""
        if not self.strict:
            return 0
        now = self.clock.now()
        credit, since = self._credit.get((team, channel), (float(self.burst), now))
        credit = min(float(self.burst), credit + now - since)
        if credit < 1:
            self._credit[team, channel] = (credit, now)
            return max(1, math.ceil(1 - credit))
        self._credit[team, channel] = (credit - 1, now)
        return 0
