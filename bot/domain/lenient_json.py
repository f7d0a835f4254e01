"""Parsing of JSON by models, users and programs, with the same rules for all.

An object with the same name twice is rejected everywhere, because one reader would approve other values than another
one runs. So is JSON above a depth limit: readers have limits of their own, from two hundred levels on, and fail in many
ways. MCP servers drop the connection with all its calls. Legitimate values are not so deep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

DEEPEST = 64
"""Maximum nesting of lists and objects."""
LONGEST_NAME = 200
"""Maximum number of stored characters of a tool's name. Names of tools are shorter; only an invalid name is cut."""


class DuplicateName(ValueError):
    """One JSON object holds the same name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the name {name!r:.80} is there twice")
        self.name = name


def parse_json(text: str) -> Any:
    """Return a JSON value. Raises ValueError for text that is none or could be neither stored nor sent to a tool (lone
    surrogates, NaN, 1e999, more levels than DEEPEST), and DuplicateName.
    """
    try:
        value = json.loads(text, object_pairs_hook=unique_names)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if exceeds_json_depth(value):
        raise ValueError("nested too deeply")
    return value


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the object; None if the text is not an object or cannot be stored. An empty text is an empty object.
    Incomplete text and duplicate names are rejected, because guessed arguments could be approved.
    """
    try:
        value = parse_json(text) if text.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def exceeds_json_depth(value: Any) -> bool:
    """Return True if a JSON value has more than DEEPEST levels of lists and objects."""
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        containers = [
            inner for container in containers for inner in _within(container) if isinstance(inner, dict | list)
        ]
        if not containers:
            return False
    return True


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of one object, as `object_pairs_hook` of `json.loads`. Raises DuplicateName, because readers
    disagree on which of two members counts (RFC 8259, section 4).
    """
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise DuplicateName(name)
        members[name] = value
    return members


def _within(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
