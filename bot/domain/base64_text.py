"""Base64 in texts, which no model can use: it is replaced by a note."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from bot.domain.messages import BINARY, Message, MessageRole, TextPart, ToolResult, detect_media_type

_LINE = 76
"""Characters of one line (RFC 2045, 6.8)."""
_LONGEST_TOKEN = 400
"""Characters of the longest ids and cursors of services, which look alike and have to go back to them. Only base64 that
is marked, has several lines, or begins like a known kind of file is replaced if it is not longer.
"""
_GROUP = 4
"""Characters that stand for three bytes. A text that is not longer has to be padded."""
_OFTEN = 8
"""Most characters of base64 for one change between capital letters, small letters and digits."""
_CHARACTER = r"(?:[\w+/-]|\\{1,7}/|(?:%|\\{1,7}u00)2[bf])"
_BREAK = r"(?:\\{1,7}[rnt]|[\s>])++"
_PAD = r"(?:=|(?:%|\\{1,7}u00)3d)"
_CODE = re.compile(
    r"(?P<url>data:(?P<type>[\w.+/-]*)[^,\s]{0,99};base64,)?(?<![\w+/-])(?<![\w+/-]\\/)"
    rf"(?P<code>{_CHARACTER}{{40,}}+(?:{_BREAK}{_CHARACTER}{{40,}}+)*(?:{_BREAK}{_CHARACTER}++(?={_PAD}{{1,2}}+(?!\w)))?)"
    rf"{_PAD}{{0,2}}",
    re.ASCII | re.IGNORECASE,
)
_CHANGE = re.compile(r"[a-z](?=[A-Z\d])|[A-Z](?=[a-z\d])|\d(?=[A-Za-z])")
_LAYOUT = re.compile(r"\\+[rnt]|[\s>]")
_ESCAPE = re.compile(r"\\+(?:u00)?")


def without_base64(text: str) -> tuple[str, list[bytes]]:
    """Return a text with notes in place of base64 of more than a line, and the contents of known kinds."""
    files: list[bytes] = []

    def note(match: re.Match[str]) -> str:
        code = unquote(_ESCAPE.sub(lambda escape: "%" if "u" in escape[0] else "", _LAYOUT.sub("", match["code"])))
        data = decode_base64(code) if len(code) > _LINE else b""
        kind = detect_media_type(data, match["type"] or "")
        is_marked = bool(match["url"]) or kind != BINARY
        is_long = len(code) > _LONGEST_TOKEN or _LAYOUT.search(match["code"]) is not None
        if not data or not (is_marked or (is_long and (data.isascii() or _is_mixed(code)))):
            return match[0]
        if kind != BINARY:
            files.append(data)
        return f"[base64 left out: {'data' if kind == BINARY else kind}, {len(data)} bytes]"

    return (_CODE.sub(note, text) if len(text) > _LINE else text), files


def message_without_base64(message: Message) -> Message:
    """Return a message for a model with such notes in the texts that others wrote."""
    if message.role is MessageRole.ASSISTANT:
        return message
    parts = tuple(map(_part, message.parts))
    return message if parts == message.parts else replace(message, parts=parts)


def _part(part: Any) -> Any:
    match part:
        case TextPart(text):
            short = without_base64(text)[0]
            return part if short == text else replace(part, text=short)
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
    has_all = all(any(map(has, code)) for has in (str.isupper, str.islower, str.isdigit))
    return has_all and len(_CHANGE.findall(code)) * _OFTEN >= len(code)


def decode_base64(code: str) -> bytes:
    """Return the decoded bytes; empty if it is no base64. The alphabet for URLs, blanks and a cut end are accepted."""
    code = "".join(code.split())
    code = code.rstrip("=") if len(code) > _GROUP else code
    code = code[: len(code) - (len(code) % _GROUP == 1)].replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(code + "=" * (-len(code) % _GROUP * (len(code) > _GROUP)), validate=True)
    except (binascii.Error, ValueError):
        return b""
