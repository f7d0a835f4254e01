"""A JSON object as a model has written it: read in one way wherever it stands.

Called by the providers for the arguments of a call, and by the engine for arguments that are a text within others.
"""

from __future__ import annotations

import json
from typing import Any

from bot.domain.nesting import is_too_deep

LONGEST_NAME = 200
"""Characters of a tool's name that are kept: no tool's is longer, and whoever asked is told which there is not."""


def read_object(text: str) -> dict[str, Any] | None:
    """The object; None if it is none, or none that can be kept. No text is one without members. A half-written one is
    never completed, and none is read that says one thing twice: arguments that are partly a guess could be signed for.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_once)
        # What cannot be written again (half a surrogate pair, NaN, 1e999) could be neither stored nor sent to a tool.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and not is_too_deep(found) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different (RFC 8259, 4: what else it may be differs from reader to reader)."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
