"""One piece of a result's content: what of it the model reads, and what people are given.

Called by `results`. A model gets texts and the images it can look at; in the place of everything else stands a text
that says what there is, and people get the file. A piece that is for one of them alone (MCP,
annotations: `audience`) goes to that one alone; the other is told, at most, that it was there.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from mcp import types

from bot.domain.characters import visible
from bot.domain.file_signatures import BINARY, detect_image_type, detect_media_type
from bot.domain.messages import FilePart, ImageAudience, ImagePart, ResultPart, TextPart
from bot.mcp.redaction import Redaction
from bot.mcp.text_filter import strip_unstorable

FOR_THE_PERSON = "(A text that is for the person alone was given to them in a file.)"
_NAME_LENGTH = 120
_UNSAFE = frozenset('/\\:*?"<>|')


def to_parts(block: types.ContentBlock, redact: Redaction) -> Iterator[ResultPart]:
    """The parts that stand for a piece, without secrets."""
    readers = _readers(block)
    match block:
        case types.TextContent(text=text):
            yield from _text(text, "text/plain", "", readers, redact)
        case types.ImageContent(data=data, mime_type=mime):
            yield from _bytes(data, mime, "", readers, _words(f"[Image: {mime}]", redact))
        case types.AudioContent(data=data, mime_type=mime):
            yield from _bytes(data, mime, "", readers, _words(f"[Audio: {mime}]", redact))
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text, uri=uri, mime_type=mime)):
            yield from _text(text, mime or "text/plain", _name(uri, redact), readers, redact)
        case types.EmbeddedResource(resource=types.BlobResourceContents(blob=blob, uri=uri, mime_type=mime)):
            yield from _bytes(blob, mime or "", _name(uri, redact), readers, _words(f"[Resource: {uri}]", redact))
        case types.ResourceLink(name=name, uri=uri):
            yield from _text(f"[Link: {name} {uri}]", "text/plain", "", readers, redact)


def _readers(block: types.ContentBlock) -> ImageAudience:
    audience = set((block.annotations.audience if block.annotations else None) or ())
    if audience == {"user"}:
        return ImageAudience.PEOPLE
    return ImageAudience.MODEL if audience == {"assistant"} else ImageAudience.ALL


def _words(text: str, redact: Redaction) -> TextPart:
    return TextPart(redact.json_text(strip_unstorable(text)))


def _text(text: str, mime_type: str, name: str, readers: ImageAudience, redact: Redaction) -> Iterator[ResultPart]:
    words = _words(text, redact)
    if readers is not ImageAudience.PEOPLE:
        yield words
        return
    yield TextPart(FOR_THE_PERSON)
    data = words.text.encode()
    yield FilePart(data, detect_media_type(data, mime_type), name)


def _bytes(encoded: str, mime_type: str, name: str, readers: ImageAudience, words: TextPart) -> Iterator[ResultPart]:
    """An image that can be looked at stands for itself. What cannot be decoded is a text and no more."""
    data = _decoded(encoded)
    image = detect_image_type(data)
    if image and readers is not ImageAudience.PEOPLE:
        yield ImagePart(data, image, _ending_in(name, image), readers)
        return
    yield words
    if image:
        yield ImagePart(data, image, _ending_in(name, image), readers)
    elif data and readers is not ImageAudience.MODEL:
        found = detect_media_type(data, mime_type)
        yield FilePart(data, found, _ending_in(name, found))


def _decoded(encoded: str) -> bytes:
    """The bytes, none if they cannot be read. Some servers write an address of the kind `data:` or break the lines."""
    if encoded.startswith("data:"):
        encoded = encoded.partition(",")[2]
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _name(uri: str, redact: Redaction) -> str:
    """What the thing at an address is called, as a file may be called anywhere; empty if that says nothing."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        return ""
    last = redact(visible(unquote(path.rstrip("/").rpartition("/")[2], errors="replace")))
    return "".join("_" if char in _UNSAFE or char.isspace() else char for char in last).strip("._")[-_NAME_LENGTH:]


def _ending_in(name: str, mime_type: str) -> str:
    """The name, with another ending if its own promises something else: people open files by their endings."""
    if not name or mimetypes.guess_type(name)[0] == mime_type:
        return name
    if mime_type == BINARY:
        return f"{name}.bin"
    if mimetypes.guess_type(name)[0] is None and "." in name and not mime_type.startswith("image/"):
        return name
    return f"{name}{mimetypes.guess_extension(mime_type) or ''}"
