"""Prefix conditions on conversation keys, which each database can answer from an index."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_LAST = "\U0010ffff"
"""Greater than any character that follows a prefix."""


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
