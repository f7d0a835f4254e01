"""What a session does by itself while nobody uses it.

A process that hangs, or a network path that is gone, says nothing: the next call would be the first to find out. So a
quiet server is asked now and then whether it is there, one that did not answer a call is asked at once, and one that
nobody has used for long is let go. Started by
`session` beside its other work.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from mcp import Client, MCPError
from mcp.types import METHOD_NOT_FOUND
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from bot.mcp import request_context
from bot.mcp.activity import ActivityTracker
from bot.mcp.calls import BROKEN
from bot.mcp.connection_events import ConnectionEvents
from bot.mcp.connection_timing import ConnectionTiming


async def monitor(
    client: Client, line: ConnectionEvents, use: ActivityTracker, pacing: ConnectionTiming, clock: Callable[[], float]
) -> None:
    """Doubt the connection when its server does not answer, and let it rest when it is not needed. Ends with that, or
    by cancellation.
    """
    idle_after = math.inf if pacing.idle_after is None else pacing.idle_after
    quiet_after = math.inf if pacing.quiet_after is None else pacing.quiet_after
    began = asked = clock()
    use.wondered.clear()
    while True:
        rests_at = max(began, use.unused_since) + idle_after
        asks_at = max(asked, use.unused_since) + quiet_after
        now = clock()
        if now >= rests_at:
            line.mark_idle()
            return
        if now >= asks_at or use.wondered.is_set():
            use.wondered.clear()
            if not await _answers(client, pacing.quiet_limit):
                line.mark_suspect()
            asked = clock()
            continue
        ends = min(rests_at, asks_at) - now
        with suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(ends) else ends):
                await use.wondered.wait()


async def _answers(client: Client, limit: float) -> bool:
    """Whether the server says anything. The newer protocol has no ping: there it is asked what it speaks
    (MCP specification 2026-07-28, changelog).
    """
    with request_context.begin() as attempt:
        try:
            async with asyncio.timeout(limit):
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    await client.session.send_discover(client.protocol_version)
                else:
                    await client.session.send_ping()
        except MCPError as error:
            # Its own words, and not those of a gateway or of the library: it is there and knows no ping.
            return error.code == METHOD_NOT_FOUND and (attempt.status or 200) < 400
        except (*BROKEN, TimeoutError):
            return False
    return True
