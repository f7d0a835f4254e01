"""Tools of the bot itself: searching for tools, reading the rest of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import OWN_SERVER, Annotations, Tool

_READS = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


def define_tool(name: str, description: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> Tool:
    """Return the definition of a built-in tool that reads."""
    return Tool(
        name=name,
        server=OWN_SERVER,
        original_name=name.removeprefix(f"{OWN_SERVER}__"),
        description=description,
        input_schema={"type": "object", "properties": properties, "required": list(required)},
        annotations=_READS,
        trusted=True,
    )


def text_result(call: ToolCall, text: str, *, is_error: bool = False) -> ToolResult:
    """Return the result of a built-in tool."""
    return ToolResult(call.id, (TextPart(text),), is_error)
