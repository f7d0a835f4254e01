"""The doorbell inside a transaction: a PostgreSQL notification that goes out with the commit.

A hint, never the truth: whoever misses it finds the row at its next look. SQLite has one process, which rings itself.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

CHANNEL = "countersign"

_notify = sa.select(sa.func.pg_notify(CHANNEL, bindparam("payload")))


def notify_all(connection: sa.Connection) -> None:
    """There may be something to claim or to draw."""
    _ring(connection, "look")


def notify_turn(connection: sa.Connection, turn_id: str) -> None:
    """Somebody has decided something about this turn."""
    _ring(connection, f"decided {turn_id}")


def notify_stop(connection: sa.Connection, turn_id: str) -> None:
    """Somebody wants this turn stopped."""
    _ring(connection, f"stopped {turn_id}")


def notify_config_changed(connection: sa.Connection) -> None:
    """Servers, policies or profiles are others now."""
    _ring(connection, "changed")


def _ring(connection: sa.Connection, payload: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_notify, {"payload": payload})
