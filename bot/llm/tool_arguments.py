"""A call's arguments on the wire: the model's text on the way in, an object on the way out.

Called by the provider modules. Knows no vendor.
"""

from __future__ import annotations

import json
from typing import Any

from bot.domain.messages import ToolCall
from bot.domain.nesting import is_too_deep
from bot.llm.foreign_text import well_formed

UNREADABLE_LIMIT = 2000
"""Characters of unreadable text that are kept, for the model and for people to see what went wrong."""


def read_call(call_id: str, name: str, text: str) -> ToolCall:
    """Make a call of the text a model wrote. Whatever is not one JSON object is kept as `unreadable`; no text means
    no arguments. A half-written object is never completed: arguments that are partly a guess could be signed for.
    """
    if not text.strip():
        return ToolCall(call_id, name)
    try:
        arguments = json.loads(text)
        # What cannot be written again (half a surrogate pair, NaN, 1e999) could be neither stored nor sent to a tool.
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict) or is_too_deep(arguments):
        return ToolCall(call_id, name, unreadable=well_formed(text[:UNREADABLE_LIMIT]))
    return ToolCall(call_id, name, arguments)


def written_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as the model is reminded of them: always a JSON object, because services parse the history too."""
    return {"_unreadable": call.unreadable} if call.unreadable else dict(call.arguments)
