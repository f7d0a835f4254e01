"""Statements are compiled once a process, as they are in a program, which opens its database once: a test that opens
one for itself would compile all of them again, which is a third of its work. Importing this does it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


class Compiled(dict[Any, Any]):
    """SQLAlchemy's cache of compiled statements, for all engines: their dialects differ only by what is in `_alike`."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_alike(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(_alike(key), compiled)


def _alike(key: Any) -> Any:
    dialect, *statement = key
    return type(dialect), dialect.server_version_info, *statement


_compiled = Compiled()


@sa.event.listens_for(sa.Engine, "engine_connect")
def _remember(connection: sa.Connection) -> None:
    connection.execution_options(compiled_cache=_compiled)
