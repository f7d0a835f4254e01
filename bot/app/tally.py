"""What has become of sessions with MCP servers in this process, and how often what is known of their tools was of use:
counted in memory for people who ask with `/mcp stats`, beside whatever else is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from bot.domain.measurements import CacheUsed, Measurement, Observe, SessionChanged, SinceStart


class Tally:
    """Counts, and hands everything on to `observe`."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._cache: Counter[tuple[str, str]] = Counter()

    def observe(self, measurement: Measurement) -> None:
        """Count it, if it is about a server."""
        match measurement:
            case SessionChanged(server, event):
                self._sessions[server, event] += 1
            case CacheUsed(server, event):
                self._cache[server, event] += 1
            case _:
                pass
        self._observe(measurement)

    def of(self, servers: Collection[str]) -> SinceStart:
        """What was counted of these servers, by their slugs."""
        return SinceStart(_summed(self._sessions, servers), _summed(self._cache, servers))


def _summed(counts: Counter[tuple[str, str]], servers: Collection[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (server, event), count in counts.items():
        if server in servers:
            found[event] += count
    return found
