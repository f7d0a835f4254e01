"""Cache of compiled SQL statements for the whole process. Importing the module is enough.

A program opens its database once and compiles each statement once. Tests open many databases; without this cache,
compiling would be a third of their work.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


class Compiled(dict[Any, Any]):
    """SQLAlchemy's cache of compiled statements, shared by all engines. The key from `_alike` identifies a dialect."""

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
