"""Images as words, for models that cannot see and for places where only text goes.

Called by the provider modules. Knows no vendor.
"""

from __future__ import annotations

from dataclasses import replace

from bot.domain.completions import ModelRequest
from bot.domain.messages import ImagePart, Message, Part, ResultPart, TextPart, ToolResult
from bot.llm.foreign_text import one_line

_LENGTH = 200


def image_words(image: ImagePart) -> str:
    """What stands in an image's place: `[image: cat.png]`, its type where it has no name."""
    return f"[image: {one_line(image.name or image.mime_type, _LENGTH)}]"


def without_images(request: ModelRequest) -> ModelRequest:
    """The request with words in place of all images."""
    return replace(request, messages=tuple(_message(each) for each in request.messages))


def _message(message: Message) -> Message:
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolResult():
                parts.append(replace(part, parts=tuple(_part(each) for each in part.parts)))
            case ImagePart():
                parts.append(_part(part))
            case _:
                parts.append(part)
    return replace(message, parts=tuple(parts))


def _part(part: ResultPart) -> ResultPart:
    return TextPart(image_words(part)) if isinstance(part, ImagePart) else part
