"""Depth limit of external JSON, because one deep value can break all readers of a shared row.

Readers have limits of their own, from two hundred levels on, and fail in many ways: MCP servers drop the connection
with all its calls, answers cannot be serialized. Legitimate values are not so deep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

DEEPEST = 64
"""Maximum nesting of lists and objects."""


def exceeds_json_depth(value: Any) -> bool:
    """Return True if a JSON value has more than DEEPEST levels of lists and objects."""
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        containers = [inner for each in containers for inner in _within(each) if isinstance(inner, dict | list)]
        if not containers:
            return False
    return True


def _within(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
