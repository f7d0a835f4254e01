"""Text placeholders for images and documents, for models and fields that accept only text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from bot.domain.completions import ModelRequest
from bot.domain.messages import FilePart, ImagePart, Message, Part, ResultPart, TextPart, ToolCall, ToolResult
from bot.llm.text_encoding import single_line

_LENGTH = 200


def describe_image(image: ImagePart) -> str:
    """Return the placeholder of an image: `[image: cat.png]`, with the MIME type if the name is missing."""
    return f"[image: {single_line(image.name or image.mime_type, _LENGTH)}]"


def describe_file(file: FilePart) -> str:
    """Return the placeholder of a file: `[File: plan.pdf (application/pdf)]`."""
    return f"[File: {single_line(file.name, _LENGTH)} ({single_line(file.mime_type, _LENGTH)})]"


def without_images(request: ModelRequest) -> ModelRequest:
    """Return the request with placeholders for all images."""
    if not has_images(request):
        return request
    return _with(request, lambda part: TextPart(describe_image(part)) if isinstance(part, ImagePart) else part)


def without_files(request: ModelRequest) -> ModelRequest:
    """Return the request with placeholders for all documents and other files."""
    if not any(isinstance(part, FilePart) for part in _parts(request)):
        return request
    return _with(request, lambda part: TextPart(describe_file(part)) if isinstance(part, FilePart) else part)


def has_images(request: ModelRequest) -> bool:
    """Return True if the request holds images, also in tool results."""
    return any(isinstance(part, ImagePart) for part in _parts(request))


def has_documents(request: ModelRequest) -> bool:
    """Return True if the request holds PDF files, also in tool results."""
    return any(isinstance(part, FilePart) and part.mime_type == "application/pdf" for part in _parts(request))


def _parts(request: ModelRequest) -> Iterator[Part]:
    for message in request.messages:
        for part in message.parts:
            yield part
            if isinstance(part, ToolResult):
                yield from part.parts


def _with(request: ModelRequest, change: Callable[[ResultPart], ResultPart]) -> ModelRequest:
    return replace(request, messages=tuple(_message(message, change) for message in request.messages))


def _result(result: ToolResult, change: Callable[[ResultPart], ResultPart]) -> ToolResult:
    parts = tuple(change(part) for part in result.parts)
    same = all(one is other for one, other in zip(result.parts, parts, strict=True))
    return result if same else replace(result, parts=parts)


def _message(message: Message, change: Callable[[ResultPart], ResultPart]) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolResult():
                parts.append(_result(part, change))
            case ToolCall():
                parts.append(part)
            case _:
                parts.append(change(part))
    same = all(one is other for one, other in zip(message.parts, parts, strict=True))
    return message if same else replace(message, parts=tuple(parts))
