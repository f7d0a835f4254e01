"""Fields of an event from a service, read without trusting their kind: they may be missing, null or something else.

Called by the modules that put replies together, once for every few letters that a model writes.
"""

from __future__ import annotations

import json
from typing import Any

from bot.domain.completions import Usage
from bot.domain.lenient_json import exceeds_json_depth
from bot.llm.text_encoding import replace_surrogates

_MOST = 10**9


def get_field(value: object, name: str) -> Any:
    """Return the field as it is, or None if it is missing."""
    return value.get(name) if isinstance(value, dict) else None


def get_list(value: object, name: str) -> list[Any]:
    """Return the list in the field; empty if it is not a list."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def text(value: object, name: str) -> str:
    """The text in the field, empty if it is none."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, str) or not found:
        return ""
    return found if found.isascii() else replace_surrogates(found)


def json_text(value: object, name: str) -> str:
    """The text in the field, which is JSON; of a server that puts there what the text should say, its text."""
    found = value.get(name) if isinstance(value, dict) else None
    return text(value, name) if isinstance(found, str) or found is None else json.dumps(found)


def get_count(value: object, name: str) -> int:
    """Return the number in the field, without its fraction; 0 if it is missing, negative or above `_MOST`."""
    found = value.get(name) if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _MOST:
        return 0
    return int(found)


def storable(found: list[Any]) -> list[Any]:
    """Return the list with well-formed text; empty if it is not valid JSON or too deep."""
    try:
        written = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return []
    kept: list[Any] = json.loads(replace_surrogates(written))
    return [] if exceeds_json_depth(kept) else kept


def tokens(read: int, written: int, cached: int = 0, cache_writes: int = 0, reasoning: int = 0) -> Usage:
    """Return the usage of a reply. A part never exceeds its total, so that no difference is negative."""
    cached = min(cached, read)
    return Usage(read, written, cached, min(cache_writes, read - cached), min(reasoning, written))
