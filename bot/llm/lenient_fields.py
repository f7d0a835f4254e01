"""Fields of a provider's event: each may be missing, null or of another type.

The arguments of a call are the model's text on the way in, and an object on the way out.
"""

from __future__ import annotations

import json
from typing import Any

from bot.domain.completions import Usage
from bot.domain.lenient_json import LONGEST_NAME, exceeds_json_depth, parse_object
from bot.domain.messages import ToolCall
from bot.llm.text_encoding import replace_surrogates

UNREADABLE_LIMIT = 2000
"""Characters of unreadable text that are kept, so that the model and people can see the error."""


def parse_call(call_id: str, name: str, text: str) -> ToolCall:
    """Return a call made of the model's text. Text that is not one JSON object is kept as `unreadable`; no text means
    no arguments.
    """
    name, arguments = name[:LONGEST_NAME], parse_object(text)
    if arguments is None:
        return ToolCall(call_id, name, unreadable=replace_surrogates(text[:UNREADABLE_LIMIT]))
    return ToolCall(call_id, name, arguments)


def encode_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as the model is reminded of them: always a JSON object, because services parse the history too."""
    return {"_unreadable": call.unreadable} if call.unreadable else dict(call.arguments)


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
    """Return the JSON text in the field. Some servers send an object instead of its text; then return the object's
    text.
    """
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
