"""INSERT with a conflict clause for each database."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import sqlalchemy as sa


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
