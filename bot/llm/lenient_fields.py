"""Fields of an event from a service, read without trusting their kind: they may be missing, null or something else.

Called by the modules that put replies together, once for every few letters that a model writes.
"""

from __future__ import annotations

import json
from typing import Any

from bot.domain.completions import Usage
from bot.domain.json_depth import exceeds_json_depth
from bot.llm.text_encoding import replace_surrogates

_MOST = 10**9


def get_field(value: object, name: str) -> Any:
    """The field as it is, None if it is not there."""
    return value.get(name) if isinstance(value, dict) else None


def get_list(value: object, name: str) -> list[Any]:
    """The list in the field, empty if it is none."""
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
    """The number in the field, without its fraction; 0 if it is none, or none that anybody could have counted to."""
    found = value.get(name) if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= _MOST:
        return 0
    return int(found)


def storable(found: list[Any]) -> list[Any]:
    """What is to be kept as it is, with well-formed text; nothing if that is not possible."""
    try:
        written = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return []
    kept: list[Any] = json.loads(replace_surrogates(written))
    return [] if exceeds_json_depth(kept) else kept


def tokens(read: int, written: int, cached: int = 0, cache_writes: int = 0, reasoning: int = 0) -> Usage:
    """What a reply has cost. No part is more than what it is a part of, whatever the service says: a limit would be
    counted backwards.
    """
    cached = min(cached, read)
    return Usage(read, written, cached, min(cache_writes, read - cached), min(reasoning, written))
