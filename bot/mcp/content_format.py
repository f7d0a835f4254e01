"""Resources and prompts as text for users.

Texts have no invisible characters and no secrets. Other contents are shown by their size.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from mcp import Client, types

from bot.domain.capabilities import BlobContents, Piece, TextContents
from bot.domain.characters import visible
from bot.mcp.redaction import Redaction
from bot.mcp.results import truncate


async def format_resource(client: Client, uri: str, redact: Redaction) -> Sequence[Piece]:
    """Read a resource and return its contents. Raises the errors of a request, `calls.BROKEN`."""
    answer = await client.read_resource(uri, cache_mode="bypass")
    return tuple(_content(content, redact) for content in answer.contents)


async def format_prompt(client: Client, name: str, arguments: Mapping[str, str], redact: Redaction) -> Sequence[Piece]:
    """Get a prompt and return its messages. Raises the errors of a request, `calls.BROKEN`."""
    answer = await client.get_prompt(name, dict(arguments))
    return tuple(_message(message, redact) for message in answer.messages)


def _content(content: types.TextResourceContents | types.BlobResourceContents, redact: Redaction) -> Piece:
    heading, mime_type = redact(visible(content.uri)), redact(visible(content.mime_type or ""))
    if isinstance(content, types.TextResourceContents):
        return _text(heading, content.text, redact, mime_type)
    return BlobContents(heading, mime_type, _size(content.blob))


def _message(message: types.PromptMessage, redact: Redaction) -> Piece:
    role = str(message.role)
    match message.content:
        case types.TextContent(text=text):
            return _text(role, text, redact)
        case types.ImageContent(data=data, mime_type=mime) | types.AudioContent(data=data, mime_type=mime):
            return BlobContents(role, redact(visible(mime)), _size(data))
        case types.EmbeddedResource(resource=embedded):
            return _content(embedded, redact)
        case types.ResourceLink(name=name, uri=uri):
            return _text(role, f"[Link: {name} {uri}]", redact)


def _text(heading: str, text: str, redact: Redaction, mime_type: str = "") -> TextContents:
    return TextContents(heading, "".join(truncate((redact(visible(text)),))), mime_type)


def _size(data: str) -> int:
    """Return the size in bytes of base64 data; the length of the text if it is not base64."""
    try:
        return len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return len(data)
