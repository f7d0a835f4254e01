"""Wakeups of other processes: PostgreSQL notifications that are sent with the commit.

A notification is only a hint: a process that misses one finds the row at its next poll. On SQLite the one process wakes
itself.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam

CHANNEL = "countersign"

_notify = sa.select(sa.func.pg_notify(CHANNEL, bindparam("payload")))


def notify_all(connection: sa.Connection) -> None:
    """Notify all processes of claimable turns or stale views."""
    _send(connection, "work")


def notify_turn(connection: sa.Connection, turn_id: str) -> None:
    """Notify the turn's process of a decision."""
    _send(connection, f"decided {turn_id}")


def notify_stop(connection: sa.Connection, turn_id: str) -> None:
    """Notify the turn's process of a stop request."""
    _send(connection, f"stopped {turn_id}")


def notify_config_changed(connection: sa.Connection) -> None:
    """Notify all processes of changed servers, policies or profiles."""
    _send(connection, "changed")


def _send(connection: sa.Connection, payload: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_notify, {"payload": payload})
