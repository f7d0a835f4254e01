"""SQL in which the databases differ: INSERT with a conflict clause, the database's clock, wakeups of other processes.

Wakeups are sent on PostgreSQL only, in the transaction. They are hints: processes also poll.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

FUNCTION = "countersign_now"
"""Name of the clock in SQL: on SQLite a connection defines it, on PostgreSQL a migration."""
CHANNEL = "countersign"
"""Channel of NOTIFY."""

_notify = sa.select(sa.func.pg_notify(CHANNEL, bindparam("payload")))


class Upsert:
    """One statement, built for each database at its first use."""

    def __init__(self, build: Callable[[Callable[[sa.Table], Any]], sa.Executable]) -> None:
        self._build = build
        self._built: dict[str, sa.Executable] = {}

    def on(self, connection: sa.Connection) -> sa.Executable:
        """Return the statement for the connection's database."""
        dialect = connection.dialect.name
        if dialect not in self._built:
            self._built[dialect] = self._build(import_module(f"sqlalchemy.dialects.{dialect}").insert)
        return self._built[dialect]


class now(FunctionElement[float]):  # noqa: N801 - reads as SQL
    """SQL function: epoch seconds of the database's clock."""

    type = sa.Double()
    inherit_cache = True


@compiles(now)
def _call(_element: now, _compiler: Any, **_: Any) -> str:
    return f"{FUNCTION}()"


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
