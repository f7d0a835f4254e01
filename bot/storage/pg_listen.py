"""Wakeups from other processes: one connection that listens for PostgreSQL's notifications.

A pooler in transaction mode may drop all of them. Polling then finds the work later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bot.domain.turns import ApprovalDecided, ConfigChanged, StopRequested, Wakeup, WorkAvailable
from bot.storage.address import PostgresServer
from bot.storage.dialect import CHANNEL
from bot.storage.postgresql import KEEPALIVE

log = logging.getLogger(__name__)

_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0


async def listen(address: PostgresServer, on_wakeup: Callable[[Wakeup], None]) -> None:
    """Pass on every wakeup until cancelled. After a lost connection, reconnect and check for missed work."""
    import psycopg  # noqa: PLC0415 - SQLite needs none of it

    pause = _SHORTEST_PAUSE
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(
                address.url, autocommit=True, application_name="countersign doorbell", **KEEPALIVE
            )
            async with connection:
                await connection.execute(f"listen {CHANNEL}")
                pause = _SHORTEST_PAUSE
                on_wakeup(WorkAvailable())
                async for notification in connection.notifies():
                    on_wakeup(parse_wakeup(notification.payload))
        except psycopg.Error as error:
            log.debug("connection for notifications lost, reconnecting: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def parse_wakeup(payload: str) -> Wakeup:
    """Parse a notification's payload. An unknown payload, of a later release, counts as "work available"."""
    kind, _, turn_id = payload.partition(" ")
    match kind:
        case "decided":
            return ApprovalDecided(turn_id)
        case "stopped":
            return StopRequested(turn_id)
        case "changed":
            return ConfigChanged()
        case _:
            return WorkAvailable()
