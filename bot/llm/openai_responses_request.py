"""A model request in the words of OpenAI's Responses.

Called by `openai_responses`. Knows no vendor library: plain JSON out. Nothing is stored at the service: each request
holds the whole transcript, the model's own reasoning included, which only the service can read.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Any

from bot.domain.completions import ModelRequest, ToolChoice
from bot.domain.messages import FilePart, ImagePart, Message, MessageRole, Part, TextPart, ToolCall, ToolResult
from bot.domain.tools import Tool
from bot.llm.attachment_text import describe_file, describe_image
from bot.llm.call_ids import CallIds, valid_name
from bot.llm.error_classification import ErrorKind
from bot.llm.foreign_content import fit_to_read
from bot.llm.text_encoding import single_line
from bot.llm.tool_arguments import encode_arguments
from bot.llm.tool_schemas import tool_description, tool_schema

METADATA = "openai"
"""The key of `provider_metadata`: `{"by": who wrote it, "phase": of its text, "reasoning": [{"before": part number,
"item": the item as it came}]}`."""

_KEYS = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
"""Names of arguments: OpenAI takes nearly every text."""
_LONGEST_NAME = 200
_FEWEST_TOKENS = 16
"""The service refuses to write less."""

Item = dict[str, Any]


def request_body(
    model: str, request: ModelRequest, known: Collection[ErrorKind] = (), *, own_address: bool, by: str = ""
) -> dict[str, Any]:
    """The whole body, for the vendor's own address or for a compatible server that has had the `known` problems.
    Reasoning is shown to whom it is `by`.
    """
    request = fit_to_read(request)
    ids = CallIds()
    instructions = "\n\n".join(m.text for m in takewhile(_is_system, request.messages) if m.text.strip())
    body: dict[str, Any] = {
        "model": model,
        "input": [each for m in dropwhile(_is_system, request.messages) for each in _items(m, by, ids)],
        "max_output_tokens": max(_FEWEST_TOKENS, request.limits.max_tokens),
        "store": False,
        "stream": True,
    }
    if ErrorKind.REASONING not in known:
        body["include"] = ["reasoning.encrypted_content"]
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is ToolChoice.NONE:  # the tools stay listed: calls in the transcript refer to them
            body["tool_choice"] = "none"
    if own_address:  # compatible servers may not know these
        body["prompt_cache_key"] = _cache_key(instructions, request.tools)
        body["stream_options"] = {"include_obfuscation": False}
    if not body["input"]:
        body["input"] = [{"role": "user", "content": "(empty message)"}]
    return body


def _is_system(message: Message) -> bool:
    return message.role is MessageRole.SYSTEM


def _cache_key(instructions: str, tools: Sequence[Tool]) -> str:
    """Leads requests that begin alike to where the service has that beginning still."""
    beginning = "\n".join((instructions, *(tool.name for tool in tools)))
    return hashlib.sha256(beginning.encode("utf-8", "replace")).hexdigest()[:32]


def _tool(tool: Tool) -> Item:
    parameters = tool_schema(tool.input_schema, _KEYS)
    # Strict is the default here, and takes no argument that is not required.
    described = {"description": tool_description(tool), "parameters": parameters, "strict": False}
    return {"type": "function", "name": tool.name, **described}


def _items(message: Message, by: str, ids: CallIds) -> Iterator[Item]:
    match message.role:
        case MessageRole.SYSTEM:
            if message.text.strip():
                yield {"role": "developer", "content": message.text}
        case MessageRole.USER:
            yield {"role": "user", "content": _content(message.parts)}
        case MessageRole.ASSISTANT:
            yield from _assistant(message, by, ids)
        case MessageRole.TOOL:
            for part in message.parts:
                if isinstance(part, ToolResult):
                    call_id = ids.of_result(part.call_id)
                    yield {"type": "function_call_output", "call_id": call_id, "output": _output(part)}


def _assistant(message: Message, by: str, ids: CallIds) -> Iterable[Item]:
    kept: Any = message.provider_metadata.get(METADATA)
    kept = kept if isinstance(kept, Mapping) and kept.get("by") == by else {}
    reasoning = _reasoning(kept)
    items: list[Item] = []
    for n, part in enumerate(message.parts):
        items += [item for before, item in reasoning if before == n]
        match part:
            case ToolCall():
                arguments = json.dumps(encode_arguments(part), ensure_ascii=False, default=dict)
                call = {"call_id": ids.of_call(part.id), "name": valid_name(part.name), "arguments": arguments}
                items.append({"type": "function_call", **call})
            case TextPart() if part.text:
                phase = {"phase": kept["phase"]} if isinstance(kept.get("phase"), str) else {}
                items.append({"role": "assistant", "content": part.text, **phase})
    while items and items[-1].get("type") == "reasoning":  # refused without what it has led to
        items.pop()
    return items


def _reasoning(kept: Mapping[str, Any]) -> list[tuple[int, Item]]:
    entries = kept.get("reasoning")
    placed: list[tuple[int, Item]] = []
    for entry in entries if isinstance(entries, Sequence) else ():
        match entry:
            case {"before": int(before), "item": {"type": "reasoning", "encrypted_content": str()} as item}:
                placed.append((before, dict(item)))
    return placed


def _output(result: ToolResult) -> str | list[Item]:
    if any(_is_file(part) for part in result.parts):
        prefix = [{"type": "input_text", "text": "Error:"}] if result.is_error else []
        return [*prefix, *(_part(part) for part in result.parts)]
    return ("Error: " if result.is_error else "") + "\n".join(_words(part) for part in result.parts)


def _content(parts: Sequence[Part]) -> str | list[Item]:
    if any(_is_file(part) for part in parts):
        return [_part(part) for part in parts]
    return "\n".join(_words(part) for part in parts) or "(empty message)"


def _is_file(part: Part) -> bool:
    return isinstance(part, ImagePart) or (isinstance(part, FilePart) and part.mime_type == "application/pdf")


def _part(part: Part) -> Item:
    match part:
        case ImagePart():
            return {"type": "input_image", "image_url": _data_url(part), "detail": "auto"}
        case FilePart(mime_type="application/pdf"):
            name = single_line(part.name, _LONGEST_NAME) or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": _data_url(part)}
        case _:
            return {"type": "input_text", "text": _words(part)}


def _data_url(part: ImagePart | FilePart) -> str:
    return f"data:{part.mime_type};base64,{b64encode(part.data).decode()}"


def _words(part: Part) -> str:
    match part:
        case TextPart():
            return part.text
        case ImagePart():
            return describe_image(part)
        case FilePart():
            return describe_file(part)
        case _:
            return ""
