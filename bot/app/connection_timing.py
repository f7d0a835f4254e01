"""How fast connections to MCP servers are made again and let go, as the operator wants it.

Called by `office`.
"""

from __future__ import annotations

from bot.mcp.connection_timing import ConnectionTiming
from bot.settings import Settings


def connection_timing(settings: Settings) -> ConnectionTiming:
    """The times of every connection."""
    pacing = ConnectionTiming(
        first_pause=settings.mcp_reconnection_initial_delay_ms / 1_000,
        factor=settings.mcp_reconnection_multiplier,
        longest_pause=settings.mcp_reconnection_max_delay_ms / 1_000,
        tries=settings.mcp_reconnection_max_attempts,
        idle_after=settings.mcp_session_idle_timeout,
        quiet_after=settings.mcp_healthcheck_interval,
    )
    return pacing if settings.mcp_reconnection_enabled else pacing.without_reconnecting()
