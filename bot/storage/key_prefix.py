"""Conversations by how their keys begin, in a way that each database has an index for."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_LAST = "\U0010ffff"
"""Greater than whatever a key goes on with."""


class KeyHasPrefix(FunctionElement[bool]):
    """Whether a text lies between two others, byte by byte, whatever language the database sorts by."""

    type = sa.Boolean()
    inherit_cache = True


def has_prefix(key: sa.ColumnElement[str], name: str) -> KeyHasPrefix:
    """Whether a key begins with the parameter `name`, whose values `prefix_bounds` makes."""
    return KeyHasPrefix(key, sa.bindparam(f"{name}_first", type_=sa.Text), sa.bindparam(f"{name}_last", type_=sa.Text))


def prefix_bounds(name: str, beginning: str) -> dict[str, str]:
    """The values of a parameter of `has_prefix`."""
    return {f"{name}_first": beginning, f"{name}_last": beginning + _LAST}


@compiles(KeyHasPrefix)
def _between(element: KeyHasPrefix, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(each, **arguments) for each in element.clauses)
    return f"({key} >= {first} and {key} < {last})"


@compiles(KeyHasPrefix, "postgresql")
def _between_bytes(element: KeyHasPrefix, compiler: Any, **arguments: Any) -> str:
    key, first, last = (compiler.process(each, **arguments) for each in element.clauses)
    # The operators of text_pattern_ops: PostgreSQL compares by language with the others.
    return f"({key} ~>=~ {first} and {key} ~<~ {last})"
