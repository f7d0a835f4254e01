"""A model request in the words of Anthropic's Messages.

Called by `anthropic`. Knows no vendor library: plain JSON out. The service is strict about form: roles alternate
beginning with the user, results come first in the message after their calls, and no text is blank.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

from bot.domain.completions import ModelRequest, ToolChoice
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolResult
from bot.llm.attachment_text import describe_file, describe_image
from bot.llm.call_ids import CallIds, valid_name
from bot.llm.error_classification import ErrorKind
from bot.llm.foreign_content import fit_to_read
from bot.llm.text_encoding import single_line
from bot.llm.tool_arguments import encode_arguments
from bot.llm.tool_schemas import tool_description, tool_schema

METADATA = "anthropic"
"""The key of `provider_metadata`: `{"by": who wrote it, "thinking": [{"before": part number, "block": the block as it
came}]}`."""

_KEYS = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of arguments (the service's words: "Property keys should match pattern")."""
_KEPT = {"type": "ephemeral"}
"""Marks the end of what the service keeps for the next request, for five minutes after each use."""
_FENCE = "operator_note"
_FORGED = re.compile(_FENCE, re.IGNORECASE)
_LONGEST_TITLE = 200
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

Block = dict[str, Any]


def request_body(
    model: str, request: ModelRequest, _known: Collection[ErrorKind] = (), *, own_address: bool, by: str = ""
) -> dict[str, Any]:
    """The whole body, for the vendor's own address or for a compatible server. Thinking is shown to whom it is `by`."""
    request = fit_to_read(request)
    body: dict[str, Any] = {"model": model, "max_tokens": request.limits.max_tokens, "stream": True}
    system = [_text_block(m.text) for m in takewhile(_is_system, request.messages) if m.text.strip()]
    if system and own_address:  # the tools and the instructions are the same in every conversation
        system[-1]["cache_control"] = _KEPT
    if system:
        body["system"] = system
    leading = sum(1 for _ in takewhile(_is_system, request.messages))
    stable = request.stable_messages - leading if own_address else 0
    body["messages"] = _transcript(request.messages[leading:], stable, by)
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool_description(tool),
                "input_schema": tool_schema(tool.input_schema, _KEYS),
            }
            for tool in request.tools
        ]
        if request.tool_choice is ToolChoice.NONE:  # the tools stay listed: calls in the transcript refer to them
            body["tool_choice"] = {"type": "none"}
    if own_address:  # the service keeps the transcript for the next request; compatible servers may not know this
        body["cache_control"] = _KEPT
    return body


def _is_system(message: Message) -> bool:
    return message.role is MessageRole.SYSTEM


def _transcript(messages: Sequence[Message], stable: int, by: str) -> list[dict[str, Any]]:
    """The messages, with a mark at the end of the first `stable` of them: what follows is another in the next turn."""
    ids = CallIds()
    merged: list[dict[str, Any]] = []
    for n, message in enumerate(messages, start=1):
        role = "assistant" if message.role is MessageRole.ASSISTANT else "user"
        blocks = _blocks(message, ids, by)
        if not blocks:
            continue
        if n == stable:
            blocks[-1] = {**blocks[-1], "cache_control": _KEPT}
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": role, "content": blocks})
    for each in merged:
        each["content"].sort(key=lambda block: each["role"] == "user" and block["type"] != "tool_result")
    if merged and merged[0]["role"] == "assistant":
        merged.insert(0, {"role": "user", "content": [_text_block("(Earlier messages are left out.)")]})
    return merged


def _blocks(message: Message, ids: CallIds, by: str) -> list[Block]:
    match message.role:
        case MessageRole.SYSTEM:
            text = message.text.strip()
            return [_text_block(f"<{_FENCE}>\n{text}\n</{_FENCE}>")] if text else []
        case MessageRole.USER:
            return _readable(message.parts) or [_text_block("(empty message)")]
        case MessageRole.ASSISTANT:
            return _assistant(message, ids, by)
        case MessageRole.TOOL:
            return [_result(part, ids) for part in message.parts if isinstance(part, ToolResult)]


def _assistant(message: Message, ids: CallIds, by: str) -> list[Block]:
    thinking = _thinking(message, by)
    blocks: list[Block] = []
    for n, part in enumerate(message.parts):
        blocks += [block for before, block in thinking if before == n]
        match part:
            case ToolCall():
                name = valid_name(part.name)
                call = {"type": "tool_use", "id": ids.of_call(part.id), "name": name, "input": encode_arguments(part)}
                blocks.append(call)
            case TextPart() if part.text.strip():
                blocks.append(_text_block(part.text))
    while blocks and blocks[-1]["type"].endswith("thinking"):  # refused at the end of a message
        blocks.pop()
    return blocks


def _thinking(message: Message, by: str) -> list[tuple[int, Block]]:
    kept: Any = message.provider_metadata.get(METADATA)
    entries: Any = kept.get("thinking") if isinstance(kept, Mapping) and kept.get("by") == by else None
    placed: list[tuple[int, Block]] = []
    for entry in entries if isinstance(entries, Sequence) else ():
        match entry:
            case {"before": int(before), "block": {"type": "thinking" | "redacted_thinking"} as block}:
                placed.append((before, dict(block)))
    return placed


def _result(result: ToolResult, ids: CallIds) -> Block:
    content = _readable(result.parts)
    block = {"type": "tool_result", "tool_use_id": ids.of_result(result.call_id), "content": content}
    return {**block, "is_error": True} if result.is_error else block


def _readable(parts: Sequence[Part]) -> list[Block]:
    """What people and tools wrote."""
    blocks: list[Block] = []
    for part in parts:
        match part:
            case TextPart() if part.text.strip():
                blocks.append(_foreign_block(part.text))
            case ImagePart() if part.mime_type in _IMAGES:
                data = b64encode(part.data).decode()
                source = {"type": "base64", "media_type": part.mime_type, "data": data}
                blocks.append({"type": "image", "source": source})
            case ImagePart():
                blocks.append(_foreign_block(describe_image(part)))
            case FilePart(mime_type="application/pdf") if part.data:
                source = {"type": "base64", "media_type": part.mime_type, "data": b64encode(part.data).decode()}
                title = _unforged(single_line(part.name, _LONGEST_TITLE)) or "document"
                blocks.append({"type": "document", "source": source, "title": title})
            case FilePart():
                blocks.append(_foreign_block(describe_file(part)))
    return blocks


def _foreign_block(text: str) -> Block:
    # The operator's fence in somebody else's text would be a forgery.
    return _text_block(_unforged(text))


def _unforged(text: str) -> str:
    return _FORGED.sub("operator note", text)


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}
