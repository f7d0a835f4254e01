"""The database's clock, for leases and expiry: the one clock that all processes share."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

SQLITE_FUNCTION = "countersign_now"
"""The name under which a SQLite connection carries its clock; `Database` registers it."""


class now(FunctionElement[float]):  # noqa: N801 - reads as SQL
    """Epoch seconds as the database counts them."""

    type = sa.Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _sqlite(_element: now, _compiler: Any, **_: Any) -> str:
    return f"{SQLITE_FUNCTION}()"


@compiles(now, "postgresql")
def _postgresql(_element: now, _compiler: Any, **_: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"
