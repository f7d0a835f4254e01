"""Conversations by how their keys begin, in a way that each database has an index for."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_LAST = "\U0010ffff"
"""Greater than whatever a key goes on with."""


class within(FunctionElement[bool]):  # noqa: N801 - reads as SQL
    """Whether a text lies between two others, byte by byte, whatever language the database sorts by."""

    type = sa.Boolean()
    inherit_cache = True


def begins(key: sa.ColumnElement[str], name: str) -> within:
    """Whether a key begins with the parameter `name`, whose values `reach` makes."""
    return within(key, sa.bindparam(f"{name}_first", type_=sa.Text), sa.bindparam(f"{name}_last", type_=sa.Text))


def reach(name: str, beginning: str) -> dict[str, str]:
    """The values of a parameter of `begins`."""
    return {f"{name}_first": beginning, f"{name}_last": beginning + _LAST}


@compiles(within)
def _between(element: within, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(each, **arguments) for each in element.clauses)
    return f"({key} >= {first} and {key} < {last})"


@compiles(within, "postgresql")
def _between_bytes(element: within, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(each, **arguments) for each in element.clauses)
    # The operators of text_pattern_ops: PostgreSQL compares by language with the others.
    return f"({key} ~>=~ {first} and {key} ~<~ {last})"
