"""What has become of sessions with MCP servers in this process, and how often what is known of their tools was of use:
counted in memory for people who ask with `/mcp stats`, beside whatever else is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from bot.domain.metrics import CacheUsed, MetricEvent, MetricSink, ProcessCounters, SessionChanged


class SessionCounters:
    """Counts, and hands everything on to `observe`."""

    def __init__(self, observe: MetricSink) -> None:
        self._observe = observe
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._cache: Counter[tuple[str, str]] = Counter()

    def observe(self, measurement: MetricEvent) -> None:
        """Count it, if it is about a server."""
        match measurement:
            case SessionChanged(server, event):
                self._sessions[server, event] += 1
            case CacheUsed(server, event):
                self._cache[server, event] += 1
            case _:
                pass
        self._observe(measurement)

    def of(self, servers: Collection[str]) -> ProcessCounters:
        """What was counted of these servers, by their slugs."""
        return ProcessCounters(_summed(self._sessions, servers), _summed(self._cache, servers))


def _summed(counts: Counter[tuple[str, str]], servers: Collection[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (server, event), count in counts.items():
        if server in servers:
            found[event] += count
    return found
