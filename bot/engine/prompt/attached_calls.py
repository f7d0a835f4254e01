"""Resources and prompts that a user attached to a question, as messages of a model request.

A resource is data, in an envelope. A prompt is the question itself, with the roles that its server gave it; the sources
of the turn name the server (`policy.taint`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from bot.domain.messages import ImagePart, Message, MessageRole, TextPart, ToolResult, enclose, user
from bot.domain.tools import ToolKind
from bot.domain.turns import StepStatus, ToolStep

GO_ON = "Go on from here."
"""Last message after a prompt that ends with words of the assistant: some models take no such ending."""


def is_prompt(step: ToolStep) -> bool:
    """Return True if the call is for a prompt of a server."""
    return step.tool is not None and step.tool.name == ToolKind.GET_PROMPT


def resource_message(step: ToolStep, result: ToolResult) -> Message:
    """Return an attached resource, or the reason why there is none."""
    source = step.call.name
    address = step.call.arguments.get("uri", "")
    what = "Attached to this question" if step.status is StepStatus.DONE else "Attached to this question, but not read"
    text = f"{what} by the person:\n{enclose(f'{source} {address}', result.text_or_json)}"
    return Message(MessageRole.USER, (TextPart(text), *_images(result)))


def prompt_messages(result: ToolResult) -> list[Message]:
    """Return the messages of a prompt. One without known roles is the user's."""
    roles = _roles(result.structured)
    if len(roles) != len(result.parts):
        return [user(result.text)]
    messages = [
        Message(MessageRole.ASSISTANT if role == MessageRole.ASSISTANT else MessageRole.USER, _readable(parts))
        for role, parts in groupby(zip(roles, result.parts, strict=True), key=lambda pair: pair[0])
    ]
    messages = [message for message in messages if message.parts]
    if messages and messages[-1].role is MessageRole.ASSISTANT:
        messages.append(user(GO_ON))
    return messages


def _readable(pairs: Iterable[tuple[str, Any]]) -> tuple[TextPart | ImagePart, ...]:
    return tuple(part for _, part in pairs if isinstance(part, TextPart | ImagePart))


def _images(result: ToolResult) -> tuple[ImagePart, ...]:
    return tuple(part for part in result.parts if isinstance(part, ImagePart))


def _roles(structured: Any) -> list[str]:
    roles = structured.get("roles") if isinstance(structured, Mapping) else None
    return [str(role) for role in roles] if isinstance(roles, list | tuple) else []
