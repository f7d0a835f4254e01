"""The database's clock, for leases and expiry: the one clock that all processes share."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

FUNCTION = "countersign_now"
"""The name of the clock in SQL: on SQLite a connection brings it along, on PostgreSQL a migration makes it."""


class now(FunctionElement[float]):  # noqa: N801 - reads as SQL
    """SQL function: epoch seconds of the database's clock."""

    type = sa.Double()
    inherit_cache = True


@compiles(now)
def _call(_element: now, _compiler: Any, **_: Any) -> str:
    return f"{FUNCTION}()"
