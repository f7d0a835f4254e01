"""Messages to and from a model, made of parts.

Pure values. Whatever a provider needs back unchanged (signatures, encrypted reasoning) travels in
`provider_metadata` and is understood by that provider alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class MessageRole(StrEnum):
    """Role of a message, in the terms of the chat protocols."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text, Markdown where a model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class OwnWords(TextPart):
    """Words of the bot itself within a tool's result: they stand outside of what is marked as data."""


class ImageAudience(StrEnum):
    """Audience of an image that a tool returned (MCP, annotations: `audience`)."""

    ALL = "all"
    PEOPLE = "people"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image; `data` are its bytes. The name may be empty."""

    data: bytes
    mime_type: str
    name: str = ""
    readers: ImageAudience = ImageAudience.ALL


@dataclass(frozen=True, slots=True)
class FilePart:
    """Any other file; `data` are its bytes. A PDF is read by models that take documents; of all else, and to all
    others, a model is told that it is there. What a tool returned may have no name.
    """

    data: bytes
    mime_type: str
    name: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An image or a file of a tool's result, whose bytes are kept with the turn and not in this value. `size` is in
    bytes; `id` is empty if they are not kept, since the turn had as many as it may have.
    """

    id: str
    mime_type: str
    name: str
    size: int
    readers: ImageAudience = ImageAudience.PEOPLE

    @property
    def is_image(self) -> bool:
        """True for an image."""
        return self.mime_type.startswith("image/")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model's wish to run a tool.

    `id` is the provider's, unique within one reply. `unreadable` holds the text the model wrote where a JSON object
    was due; such a call is never run, the model is told instead.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    unreadable: str = ""


ResultPart = TextPart | ImagePart | FilePart | StoredFile


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call, or the reason of its failure (`is_error`). `left_out` is the number of characters cut
    from the stored text. `own`: the bot rejected the call, and no server wrote this.
    """

    call_id: str
    parts: tuple[ResultPart, ...]
    is_error: bool = False
    structured: Any = None
    left_out: int = 0
    own: bool = False

    @property
    def text(self) -> str:
        """The text parts, a newline between them."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def said(self) -> str:
        """The text, or the structured content where there is none."""
        if self.text or self.structured is None:
            return self.text
        return json.dumps(self.structured, ensure_ascii=False, default=dict)

    @property
    def length(self) -> int:
        """Number of characters of the whole text, cut ones included."""
        return len(self.said) + self.left_out


Part = ResultPart | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One contribution to the transcript."""

    role: MessageRole
    parts: tuple[Part, ...]
    provider_metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text parts, joined as they stand."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls this message asks for, in the order the model wrote them."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def system(text: str) -> Message:
    """A system message of one text."""
    return Message(MessageRole.SYSTEM, (TextPart(text),))


def user(text: str) -> Message:
    """A user message of one text."""
    return Message(MessageRole.USER, (TextPart(text),))


def assistant(text: str, *calls: ToolCall) -> Message:
    """An assistant message of one text, if any, and calls."""
    return Message(MessageRole.ASSISTANT, (*((TextPart(text),) if text else ()), *calls))


def tool_results(*results: ToolResult) -> Message:
    """The answers to one reply's calls."""
    return Message(MessageRole.TOOL, results)
