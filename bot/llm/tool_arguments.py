"""A tool's arguments on the wire: the schema on the way out, the model's text on the way in.

Called by the provider modules. Knows no vendor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bot.domain.messages import ToolCall
from bot.domain.tools import Tool
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
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, unreadable=well_formed(text[:UNREADABLE_LIMIT]))
    return ToolCall(call_id, name, arguments)


def written_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as the model is reminded of them: always a JSON object, because services parse the history too."""
    return {"_unreadable": call.unreadable} if call.unreadable else dict(call.arguments)


def object_schema(tool: Tool) -> Mapping[str, Any]:
    """The tool's input schema, an object with properties even where the server left that out: vendors insist on it."""
    schema = dict(tool.input_schema)
    properties = schema.get("properties")
    return {**schema, "type": "object", "properties": properties if isinstance(properties, Mapping) else {}}
