"""Hearing other processes: one connection that listens for PostgreSQL's notifications.

A pooler in transaction mode may swallow them all. Then the polls are what finds work, and everything still happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bot.domain.wakeups import ApprovalDecided, ConfigChanged, StopRequested, Wakeup, WorkAvailable
from bot.storage.address import PostgresServer
from bot.storage.pg_notify import CHANNEL
from bot.storage.postgresql import KEEPALIVE

log = logging.getLogger(__name__)

_SHORTEST_PAUSE = 0.5
_LONGEST_PAUSE = 15.0


async def listen(address: PostgresServer, hear: Callable[[Wakeup], None]) -> None:
    """Hand on every ring until cancelled; after a lost connection, come back and look for what was missed."""
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
                hear(WorkAvailable())
                async for notification in connection.notifies():
                    hear(parse_wakeup(notification.payload))
        except psycopg.Error as error:
            log.debug("nothing is heard from other processes: %s", error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def parse_wakeup(payload: str) -> Wakeup:
    """A notification's words as a value; words of a later release only say that there is something to look for."""
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
