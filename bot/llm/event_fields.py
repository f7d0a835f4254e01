"""Fields of an event from a service, read without trusting their kind: they may be missing, null or something else.

Called by the modules that put replies together, once for every few letters that a model writes.
"""

from __future__ import annotations

from typing import Any

from bot.llm.foreign_text import well_formed


def part(value: object, name: str) -> Any:
    """The field as it is, None if it is not there."""
    return value.get(name) if isinstance(value, dict) else None


def items(value: object, name: str) -> list[Any]:
    """The list in the field, empty if it is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def text(value: object, name: str) -> str:
    """The text in the field, empty if it is none."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, str) or not found:
        return ""
    return found if found.isascii() else well_formed(found)


def count(value: object, name: str) -> int:
    """The number in the field, 0 if it is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, int) else 0
