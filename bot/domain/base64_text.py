"""Base64 in texts, which no model can use: it is replaced by a note."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import Any

from bot.domain.messages import BINARY, Message, MessageRole, TextPart, ToolResult, detect_media_type

_LINE = 76
"""Characters of one line (RFC 2045, 6.8)."""
_LONGEST_TOKEN = 400
"""Characters of the longest ids and cursors of services, which look alike and have to go back to them. Only base64 that
is marked, has several lines, or begins like a known kind of file is replaced if it is not longer.
"""
_CHARACTER = r"(?:[\w+/-]|\\/)"
_BREAK = r"(?:(?:\\r)?\\n|\r?\n)"
_CODE = re.compile(
    r"(?P<url>data:(?P<type>[\w.+/-]*)(?:;[\w=.+-]+)*;base64,)?(?<![\w+/-])(?<![\w+/-]\\/)"
    rf"(?P<code>{_CHARACTER}{{40,}}+(?:{_BREAK}{_CHARACTER}{{40,}}+)*(?:{_BREAK}{_CHARACTER}++(?==))?)={{0,2}}",
    re.ASCII,
)
_LAYOUT = re.compile(r"\\[rn]|\s")


def without_base64(text: str) -> tuple[str, list[bytes]]:
    """Return a text with notes in place of base64 of more than a line, and the contents of known kinds."""
    files: list[bytes] = []

    def note(match: re.Match[str]) -> str:
        code, claimed = _LAYOUT.sub("", match["code"]).replace("\\/", "/"), match["type"] or ""
        data = _decode(code) if len(code) > _LINE else b""
        kind = detect_media_type(data, claimed)
        is_marked = bool(match["url"]) or kind != BINARY
        is_long = len(code) > _LONGEST_TOKEN or _LAYOUT.search(match["code"]) is not None
        if not data or not (is_marked or (is_long and _is_mixed(code))):
            return match[0]
        if kind != BINARY:
            files.append(data)
        return f"[base64 left out: {'data' if kind == BINARY else kind}, {len(data)} bytes]"

    return (_CODE.sub(note, text) if len(text) > _LINE else text), files


def message_without_base64(message: Message) -> Message:
    """Return a message for a model with such notes in the texts that others wrote."""
    if message.role is MessageRole.ASSISTANT:
        return message
    return replace(message, parts=tuple(map(_part, message.parts)))


def _part(part: Any) -> Any:
    match part:
        case TextPart(text):
            return replace(part, text=without_base64(text)[0])
        case ToolResult(parts=parts, structured=structured):
            parts = tuple(map(_part, parts))
            return replace(part, parts=parts, structured=json_without_base64(structured)[0])
        case _:
            return part


def json_without_base64(value: Any) -> tuple[Any, list[bytes]]:
    """Return a JSON value with such notes in its texts, and the contents of known kinds."""
    match value:
        case str():
            return without_base64(value)
        case list():
            items = [json_without_base64(item) for item in value]
            return [item for item, _ in items], [data for _, files in items for data in files]
        case dict():
            pairs = {key: json_without_base64(item) for key, item in value.items()}
            return {key: item for key, (item, _) in pairs.items()}, [
                data for _, files in pairs.values() for data in files
            ]
        case _:
            return value, []


def _is_mixed(code: str) -> bool:
    """Return True if a text has letters of both cases and other characters, unlike words and hexadecimal digits."""
    return any(map(str.isupper, code)) and any(map(str.islower, code)) and not code.isalpha()


def _decode(code: str) -> bytes:
    """Return the decoded bytes, also of the alphabet for URLs; empty if it is no base64."""
    code = code.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(code + "=" * (-len(code) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""
