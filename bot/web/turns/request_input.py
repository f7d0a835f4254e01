"""Input of a turn from a request in the format of a chat protocol.

The last user message is the input. In a new conversation, earlier messages become context for the model, marked as
information and not as instructions; a continued conversation uses its stored history. Model, parameters and tools are
set by the operator: the response lists such fields as ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.chat.thread_context import append_file_names, describe_files, format_lines
from bot.domain.conversations import Attachment
from bot.web.problems import Problem
from bot.web.turns.surface import Uploads

MOST_IMAGES = 5
_DATA = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=\s]+)")
_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "input_image")
_PERSON = "user"


class Piece(BaseModel):
    """A part of a message: text, or an image as a `data:` address."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(max_length=40)
    text: str | None = None
    image_url: str | dict[str, Any] | None = None


class InputMessage(BaseModel):
    """One message in the format of either chat protocol. Other fields have no effect."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant", "system", "developer", "tool"] = "user"
    content: str | list[Piece] = ""


class Payload(BaseModel):
    """Input: `messages`, or `input` as one text or a list of messages. `stream` selects a response with events. Other
    fields, such as `model` and `tools`, have no effect.
    """

    model_config = ConfigDict(extra="allow")

    messages: list[InputMessage] | None = Field(default=None, max_length=500)
    input: str | list[InputMessage] | None = None
    stream: bool = True

    @property
    def ignored(self) -> list[str]:
        """Names of the fields that have no effect."""
        return sorted(name for name in self.model_extra or {} if len(name) <= 64)[:50]


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """Input text, earlier messages and images."""

    text: str
    context: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class _Image:
    data: bytes
    mime_type: str


def parse_input(payload: Payload, uploads: Uploads, owner: str) -> ParsedInput:
    """Parse the input of a request; images are stored in `uploads` for `owner`. Raises Problem with 422 if the input is
    missing or invalid.
    """
    messages = _messages(payload)
    last = next((place for place in reversed(range(len(messages))) if messages[place].role == _PERSON), None)
    if last is None:
        raise _wrong("payload.messages", "There is no message of the role user.")
    if last != len(messages) - 1:
        raise _wrong("payload.messages", "The last message must be of the role user: it is the question.")
    text, images = _read(messages[last])
    if len(images) > MOST_IMAGES:
        raise _wrong("payload.messages", f"A question takes {MOST_IMAGES} images at most.")
    if not text.strip() and not images:
        raise _wrong("payload.messages", "The question is empty.")
    attachments = tuple(_kept(uploads, owner, number, each) for number, each in enumerate(images, start=1))
    return ParsedInput(text.strip() or describe_files(attachments), _context(messages[:last]), attachments)


def _messages(payload: Payload) -> Sequence[InputMessage]:
    if (payload.messages is None) == (payload.input is None):
        raise _wrong("payload", "It takes either messages or input.")
    if payload.messages is not None:
        return payload.messages
    return [InputMessage(content=payload.input)] if isinstance(payload.input, str) else payload.input or []


def _context(said: Sequence[InputMessage]) -> tuple[str, ...]:
    """Return the earlier messages as lines, each with its role."""
    lines = []
    for each in said:
        text, images = _read(each)
        lines.append((each.role, append_file_names(text, [f"image {n}" for n, _ in enumerate(images, start=1)])))
    return format_lines([line for line in lines if line[1].strip()])


def _read(said: InputMessage) -> tuple[str, Sequence[_Image]]:
    if isinstance(said.content, str):
        return said.content, ()
    texts: list[str] = []
    images: list[_Image] = []
    for piece in said.content:
        if piece.type in _TEXTS and piece.text is not None:
            texts.append(piece.text)
        elif piece.type in _IMAGES and piece.image_url is not None:
            images.append(_image(piece.image_url))
        else:
            raise _wrong("payload.messages", "A piece of a message must be a text or an image.")
    return "\n".join(texts), images


def _image(address: str | dict[str, Any]) -> _Image:
    url = address.get("url") if isinstance(address, dict) else address
    match = _DATA.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        raise _wrong(
            "payload.messages",
            "An image must be in the request itself: data:image/png;base64,… (PNG, JPEG, GIF or WebP).",
        )
    try:
        return _Image(base64.b64decode("".join(match[2].split()), validate=True), match[1])
    except binascii.Error:
        raise _wrong("payload.messages", "An image is no base64.") from None


def _kept(uploads: Uploads, owner: str, number: int, image: _Image) -> Attachment:
    name = f"image-{number}.{image.mime_type.removeprefix('image/')}"
    return uploads.keep(image.data, name, image.mime_type, owner)


def _wrong(field: str, said: str) -> Problem:
    return Problem(422, "invalid", "Some fields cannot be used.", "correct the fields that are named", {field: said})
