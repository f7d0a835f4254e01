"""SQL in which the databases differ: column types, INSERT with a conflict clause, the database's clock, wakeups, and
prefix conditions on conversation keys, which each database can answer from an index.

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

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "fk": "%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "%(table_name)s_pkey",
    }
)
# Plain JSON on PostgreSQL too: JSONB would change the order of arguments, which approvers have seen, and
# refuse NUL, which tools may return.
Json = sa.JSON()
_LAST = "\U0010ffff"
"""Greater than any character that follows a prefix."""


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


def storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which a database cannot store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class StorableText(sa.TypeDecorator[str]):
    """Text column for untrusted text, with unstorable characters replaced."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """Return the text as it can be stored."""
        return None if value is None else storable(value)


class KeyHasPrefix(FunctionElement[bool]):
    """Condition that a text lies between two others, byte by byte, independent of the database's collation."""

    type = sa.Boolean()
    inherit_cache = True


def has_prefix(key: sa.ColumnElement[str], name: str) -> KeyHasPrefix:
    """Return the condition that a key begins with the parameter `name`, bound by `prefix_bounds`."""
    return KeyHasPrefix(key, sa.bindparam(f"{name}_first", type_=sa.Text), sa.bindparam(f"{name}_last", type_=sa.Text))


def prefix_bounds(name: str, prefix: str) -> dict[str, str]:
    """Return the values of a parameter of `has_prefix`."""
    return {f"{name}_first": prefix, f"{name}_last": prefix + _LAST}


@compiles(KeyHasPrefix)
def _between(element: KeyHasPrefix, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(clause, **arguments) for clause in element.clauses)
    return f"({key} >= {first} and {key} < {last})"


@compiles(KeyHasPrefix, "postgresql")
def _between_bytes(element: KeyHasPrefix, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(clause, **arguments) for clause in element.clauses)
    # The operators of text_pattern_ops, because the others compare by collation.
    return f"({key} ~>=~ {first} and {key} ~<~ {last})"
