"""A call's arguments on the wire: the model's text on the way in, an object on the way out.

Called by the provider modules. Knows no vendor.
"""

from __future__ import annotations

from typing import Any

from bot.domain.lenient_json import LONGEST_NAME, parse_object
from bot.domain.messages import ToolCall
from bot.llm.text_encoding import replace_surrogates

UNREADABLE_LIMIT = 2000
"""Characters of unreadable text that are kept, for the model and for people to see what went wrong."""


def parse_call(call_id: str, name: str, text: str) -> ToolCall:
    """Make a call of the text a model wrote. Whatever is not one JSON object is kept as `unreadable`; no text means
    no arguments.
    """
    name, arguments = name[:LONGEST_NAME], parse_object(text)
    if arguments is None:
        return ToolCall(call_id, name, unreadable=replace_surrogates(text[:UNREADABLE_LIMIT]))
    return ToolCall(call_id, name, arguments)


def encode_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments as the model is reminded of them: always a JSON object, because services parse the history too."""
    return {"_unreadable": call.unreadable} if call.unreadable else dict(call.arguments)
