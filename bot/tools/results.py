"""From what a server answered to what the model reads.

Called by `calls`. Pure: an MCP result or error in, a ToolResult or a text out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mcp import MCPError, types

from bot.domain.messages import TextPart, ToolResult
from bot.tools.characters import storable, storable_json
from bot.tools.redaction import Redaction

TEXT_LIMIT = 50_000
"""Characters of one result that go on (checklist L 190)."""
_EMBEDDED_LIMIT = 10_000
_HEAD_SHARE = 0.75
_ROOM_FOR_NOTE = 64


def tool_result(call_id: str, answer: types.CallToolResult, redact: Redaction) -> ToolResult:
    """The result of a call, one text part for each piece of content, without secrets.

    Structured content is kept unless it alone is over the limit; where it came without text, its JSON is the text.
    Over the limit the texts become one, three quarters of it from the beginning and the rest from the end.
    """
    texts = [redact(storable(_text_of(block))) for block in answer.content]
    structured = redact.json(storable_json(answer.structured_content))
    if structured is not None:
        spelled = json.dumps(structured, ensure_ascii=False)
        texts = texts if any(texts) else [spelled]
        structured = structured if len(spelled) <= TEXT_LIMIT else None
    if answer.is_error:
        texts = texts if any(texts) else ["The tool failed and did not say why."]
    return ToolResult(call_id, tuple(map(TextPart, limited(texts))), is_error=answer.is_error, structured=structured)


def failed_result(call_id: str, text: str) -> ToolResult:
    """A failure that the model can read."""
    return ToolResult(call_id, tuple(map(TextPart, limited([storable(text)]))), is_error=True)


def error_text(error: MCPError) -> str:
    """A protocol error in seed words: `Error calling MCP server: message - data` (checklist O 208)."""
    data: Any = error.data
    return f"Error calling MCP server: {error.message}" + (f" - {data}" if isinstance(data, str) and data else "")


def _text_of(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(mime_type=mime):
            return f"[Image: {mime}]"
        case types.AudioContent(mime_type=mime):
            return f"[Audio: {mime}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)) if len(text) <= _EMBEDDED_LIMIT:
            return text
        case types.EmbeddedResource(resource=resource):
            return f"[Resource: {resource.uri}]"
        case types.ResourceLink(name=name, uri=uri):
            return f"[Link: {name} {uri}]"


def limited(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts, or one text if they are too long: three quarters of it from the beginning, the rest from the end."""
    parts = tuple(texts)
    joined = "\n".join(parts)
    if len(joined) <= TEXT_LIMIT:
        return parts
    kept = TEXT_LIMIT - _ROOM_FOR_NOTE
    head = int(kept * _HEAD_SHARE)
    note = f"\n... {len(joined) - kept} characters left out ...\n"
    return (joined[:head] + note + joined[len(joined) - (kept - head) :],)
