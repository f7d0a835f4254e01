"""Conversion of MCP results, resources and prompts for the model and for users.

A model gets texts and the images that it can read. All other content becomes a file for users, and the model gets a
text that names it. Content with an `audience` annotation goes to that audience alone; the other gets a note.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import mimetypes
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from bot.domain.base64_text import decode_base64, json_without_base64, without_base64
from bot.domain.characters import visible
from bot.domain.messages import (
    BINARY,
    FilePart,
    ImageAudience,
    ImagePart,
    ResourceText,
    ResultPart,
    TextPart,
    ToolResult,
    detect_image_type,
    detect_media_type,
    text_for_people,
)
from bot.domain.servers import BlobContents, Piece, TextContents
from bot.domain.tools import Tool
from bot.i18n import english
from bot.mcp.argument_validation import validate
from bot.mcp.redaction import Redaction

if TYPE_CHECKING:
    from mcp import MCPError, types

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_DESCRIBING = ("title", "description")
_LITERAL = ("enum", "const", "default", "examples")
FOR_THE_PERSON = "(A text for the user only was given to them as a file.)"
_NAME_LENGTH = 120
_UNSAFE = frozenset('/\\:*?"<>|')
TEXT_LIMIT = 50_000
"""Maximum number of characters of one result."""
MOST_FILES = 10
"""Maximum number of files of one result."""
_HEAD_SHARE = 0.75
_ROOM_FOR_NOTE = 96
_LONGEST_DATA = 2_000
"""Maximum number of characters of an error's data."""
_MOST_SUGGESTIONS = 100
_LONGEST_SUGGESTION = 200
_NO_WORDS = "The tool failed without giving a reason."
_LEFT_OUT = "characters left out"
_IN_A_FILE = f"{_LEFT_OUT}, the user has the full text in a file"


def strip_unstorable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which databases and UTF-8 encoders reject."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("", text)


def storable_json(value: Any) -> Any:
    """Return a JSON value with storable strings. Infinite numbers, which a server may write as `1e400`, become
    strings.
    """
    match value:
        case str():
            return strip_unstorable(value)
        case list():
            return [storable_json(item) for item in value]
        case dict():
            return {strip_unstorable(str(key)): storable_json(item) for key, item in value.items()}
        case float() if not math.isfinite(value):
            return json.dumps(value)
        case _:
            return value


def clean_schema(schema: Any, clean: Callable[[str], str], key: str = "") -> Any:
    """Return a JSON Schema with cleaned titles and descriptions. Values that arguments are compared with stay. `key` is
    that of the value in its object.
    """
    match schema:
        case _ if key in _LITERAL:
            return schema
        case str() if key in _DESCRIBING:
            return clean(schema)
        case list():
            return [clean_schema(item, clean) for item in schema]
        case dict():
            return {name: clean_schema(value, clean, name) for name, value in schema.items()}
        case _:
            return schema


def to_parts(block: types.ContentBlock, redact: Redaction) -> Iterator[ResultPart]:
    """Yield the parts of a content block, redacted."""
    from mcp import types  # noqa: PLC0415 - loaded with the first connection

    readers = _readers(block)
    match block:
        case types.TextContent(text=text):
            yield from _text(text, "text/plain", "", readers, redact)
        case types.ImageContent(data=data, mime_type=mime):
            yield from _bytes(data, mime, "", readers, _words(f"[Image: {mime}]", redact))
        case types.AudioContent(data=data, mime_type=mime):
            yield from _bytes(data, mime, "", readers, _words(f"[Audio: {mime}]", redact))
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text, uri=uri, mime_type=mime)):
            mime = redact(visible(mime or "text/plain"))
            for part in _text(text, mime, _name(uri, redact), readers, redact):
                match part:
                    case TextPart(words) if readers is not ImageAudience.PEOPLE:
                        yield ResourceText(words, redact(visible(uri)), mime)
                    case _:
                        yield part
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
    words = _words(without_base64(text)[0], redact)
    if readers is not ImageAudience.PEOPLE:
        yield words
        return
    yield TextPart(FOR_THE_PERSON)
    data = words.text.encode()
    yield FilePart(data, detect_media_type(data, mime_type), name)


def _bytes(encoded: str, mime_type: str, name: str, readers: ImageAudience, words: TextPart) -> Iterator[ResultPart]:
    """Yield the parts of binary content. Content that cannot be decoded becomes a text."""
    data = decode_base64(encoded.partition(",")[2] if encoded[:5].lower() == "data:" else encoded)
    image = detect_image_type(data)
    is_shown = image and readers is not ImageAudience.PEOPLE
    if not is_shown:
        yield words
    if image or (data and readers is not ImageAudience.MODEL):
        yield _file(data, mime_type, name, readers)


def _file(data: bytes, mime_type: str, name: str, readers: ImageAudience) -> ImagePart | FilePart:
    if image := detect_image_type(data):
        return ImagePart(data, image, _ending_in(name, image), readers)
    detected = detect_media_type(data, mime_type)
    return FilePart(data, detected, _ending_in(name, detected))


def _name(uri: str, redact: Redaction) -> str:
    """Return the file name in a URI, valid on every system; empty if it has none."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        return ""
    last = redact(visible(unquote(path.rstrip("/").rpartition("/")[2], errors="replace")))
    return "".join("_" if char in _UNSAFE or char.isspace() else char for char in last).strip("._")[-_NAME_LENGTH:]


def _ending_in(name: str, mime_type: str) -> str:
    """Return the name with the extension of its MIME type, because users open files by extension."""
    if not name or mimetypes.guess_type(name)[0] == mime_type:
        return name
    if mime_type == BINARY:
        return f"{name}.bin"
    if mimetypes.guess_type(name)[0] is None and "." in name and not mime_type.startswith("image/"):
        return name
    return f"{name}{mimetypes.guess_extension(mime_type) or ''}"


def tool_result(
    call_id: str, tool: Tool, answer: types.CallToolResult, redact: Redaction, limit: int = TEXT_LIMIT
) -> ToolResult:
    """Return the result of a call, redacted: a text, an image or a file for each content block.

    Structured content is dropped if it alone exceeds `limit` characters. Its JSON is added as a text unless the texts
    hold the same value. Content that does not match the tool's output schema is kept with a note. Texts above `limit`
    are truncated to one text, and users get the full text as a file.
    """
    parts = [part for block in answer.content for part in to_parts(block, redact)]
    plain, encoded = json_without_base64(storable_json(answer.structured_content))
    structured = redact.json(plain)
    if structured is not None:
        spelled = json.dumps(structured, ensure_ascii=False)
        if not (_repeats(answer) or _texts_contain(_texts(parts), structured)):
            parts.append(TextPart(spelled))
        structured = structured if len(spelled) <= limit else None
    for block in answer.content:
        if block.type == "text" and _readers(block) is ImageAudience.ALL:
            encoded += without_base64(block.text)[1]
    known = {part.data for part in parts if isinstance(part, ImagePart | FilePart)}
    parts += [_file(data, "", "", ImageAudience.ALL) for data in dict.fromkeys(encoded) if data not in known]
    parts = list(limit_files(parts))
    if answer.is_error:
        parts = parts if any(_texts(parts)) or _files(parts) else [TextPart(_NO_WORDS)]
    elif objection := _schema_mismatch(tool, structured, is_sent=answer.structured_content is not None):
        parts.append(TextPart(redact(objection)))
    return ToolResult(call_id, tuple(truncate_parts(parts, limit)), is_error=answer.is_error, structured=structured)


def _repeats(answer: types.CallToolResult) -> bool:
    """Return True if the structured content is the content blocks once more, as some libraries send it."""
    repeated = _unwrap(answer.structured_content)
    items = repeated if isinstance(repeated, list) else [repeated]
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]
    return bool(items) and all(
        isinstance(item, dict) and any(block.items() <= item.items() for block in blocks) for item in items
    )


def failed_result(call_id: str, text: str) -> ToolResult:
    """Return a failure that the model can read. A lazy text is translated for people."""
    parts = tuple(map(TextPart, truncate([strip_unstorable(without_base64(english(text))[0])])))
    (shown,) = truncate([strip_unstorable(without_base64(text_for_people(text))[0])])
    return ToolResult(call_id, parts, is_error=True, for_people=shown)


def error_text(error: MCPError, redact: Redaction | None = None) -> str:
    """Return the text of a protocol error: `Error calling MCP server: message - data`. Data that is no text, such as a
    quota or the time of the next attempt, is JSON. It is shortened only if it is redacted here, because a part of a
    secret would not be found later.
    """
    text, data = f"Error calling MCP server: {error.message}", storable_json(error.data)
    if data in (None, "", {}, []):
        return text
    if redact is None:
        return f"{text} - {_describe(data)}"
    described = _describe(redact.json(data))
    return f"{text} - {described}" if len(described) <= _LONGEST_DATA else f"{text} - {described[:_LONGEST_DATA]}…"


def _describe(data: Any) -> str:
    return visible(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))


def truncate(texts: Iterable[str], note: str = _LEFT_OUT, limit: int = TEXT_LIMIT) -> tuple[str, ...]:
    """Truncate the texts to one of `limit` characters if they are longer: three quarters from the beginning,
    the rest from the end, `note` between them.
    """
    parts = tuple(texts)
    joined = "\n".join(parts)
    if len(joined) <= limit:
        return parts
    length = limit - _ROOM_FOR_NOTE
    head = int(length * _HEAD_SHARE)
    return (joined[:head] + f"\n... {len(joined) - length} {note} ...\n" + joined[len(joined) - (length - head) :],)


def _texts(parts: Sequence[ResultPart]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart)]


def _files(parts: Sequence[ResultPart]) -> list[ResultPart]:
    return [part for part in parts if not isinstance(part, TextPart)]


def limit_files(parts: Iterable[ResultPart]) -> Iterator[ResultPart]:
    """Yield the parts with at most `MOST_FILES` files."""
    files = 0
    for part in parts:
        files += not isinstance(part, TextPart)
        if isinstance(part, TextPart) or files <= MOST_FILES:
            yield part
    if files > MOST_FILES:
        yield TextPart(f"({files - MOST_FILES} more files were left out.)")


def truncate_parts(parts: Sequence[ResultPart], limit: int = TEXT_LIMIT) -> Sequence[ResultPart]:
    """Return the parts; if the texts are too long, one truncated text, and the full text as a file."""
    texts = _texts(parts)
    truncated = truncate(texts, _IN_A_FILE, limit)
    if len(truncated) == len(texts) and list(truncated) == texts:
        return parts
    return (*map(TextPart, truncated), *_files(parts), FilePart("\n".join(texts).encode(), "text/plain", ""))


def _texts_contain(texts: Sequence[str], structured: Any) -> bool:
    """Return True if the texts hold the structured content. Servers repeat it as JSON text, wrap a value as
    `{"result": ...}` or `{"content": "the text"}`, or send one text for each item.
    """
    if not any(texts):
        return False
    wanted = _unwrap(structured)
    if wanted in texts:  # as most servers do it, and to find out that a text is no JSON takes time
        return True
    read: list[Any] = []
    for text in texts:
        try:
            read.append(json.loads(text))
        except (ValueError, RecursionError):
            read.append(text)
    return structured in read or wanted in read or read == wanted


def _unwrap(structured: Any) -> Any:
    """Return the value of an object with one key: any value of `result`, a text of any key."""
    if isinstance(structured, Mapping) and len(structured) == 1:
        ((name, value),) = structured.items()
        return value if name == "result" or isinstance(value, str) else structured
    return structured


def _schema_mismatch(tool: Tool, structured: Any, *, is_sent: bool) -> str:
    """Return the mismatch of structured content with the output schema, empty if there is none (MCP specification
    2026-07-28, server/tools: servers MUST send it, clients SHOULD validate it). Content that is too large is not
    validated.
    """
    if tool.output_schema is not None and not is_sent:
        return "(The tool says that it returns structured content, and has sent none.)"
    if tool.output_schema is None or structured is None:
        return ""
    detected = validate(tool.output_schema, structured)
    return f"(This does not fit what the tool says it returns: {'; '.join(detected)}.)" if detected else ""


def resource_pieces(answer: types.ReadResourceResult, redact: Redaction) -> Sequence[Piece]:
    """Return the contents of a resource."""
    return tuple(_content(content, redact) for content in answer.contents)


def prompt_pieces(answer: types.GetPromptResult, redact: Redaction) -> Sequence[Piece]:
    """Return the messages of a prompt."""
    return tuple(_message(message, redact) for message in answer.messages)


def suggestions(answer: types.CompleteResult, redact: Redaction) -> Sequence[str]:
    """Return a server's suggestions for a value, without those that a person could not read whole."""
    values = (value for value in answer.completion.values[:_MOST_SUGGESTIONS] if len(value) <= _LONGEST_SUGGESTION)
    return tuple(value for value in values if value.strip() and value == redact(visible(value)))


def _content(content: types.TextResourceContents | types.BlobResourceContents, redact: Redaction) -> Piece:
    from mcp import types  # noqa: PLC0415 - loaded with the first connection

    heading, mime_type = redact(visible(content.uri)), redact(visible(content.mime_type or ""))
    if isinstance(content, types.TextResourceContents):
        return _text_contents(heading, content.text, redact, mime_type)
    return BlobContents(heading, mime_type, _size(content.blob))


def _message(message: types.PromptMessage, redact: Redaction) -> Piece:
    from mcp import types  # noqa: PLC0415 - loaded with the first connection

    role = str(message.role)
    match message.content:
        case types.TextContent(text=text):
            return _text_contents(role, text, redact)
        case types.ImageContent(data=data, mime_type=mime) | types.AudioContent(data=data, mime_type=mime):
            return BlobContents(role, redact(visible(mime)), _size(data))
        case types.EmbeddedResource(resource=embedded):
            return _content(embedded, redact)
        case types.ResourceLink(name=name, uri=uri):
            return _text_contents(role, f"[Link: {name} {uri}]", redact)


def _text_contents(heading: str, text: str, redact: Redaction, mime_type: str = "") -> TextContents:
    return TextContents(heading, "".join(truncate((redact(visible(without_base64(text)[0])),))), mime_type)


def _size(data: str) -> int:
    """Return the size in bytes of base64 data; the length of the text if it is not base64."""
    try:
        return len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return len(data)
