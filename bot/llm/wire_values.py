"""Values of requests and replies, independent of vendors: safe text, tolerant fields, ids and names of tool calls.

A field of a provider's event may be missing, null or of another type. A vendor refuses a whole request for one id or
name that it does not accept, and a transcript may hold those of another provider.
"""

from __future__ import annotations

import json
import re
from typing import Any

from bot.domain.completions import Usage
from bot.domain.lenient_json import LONGEST_NAME, exceeds_json_depth, parse_object
from bot.domain.messages import ToolCall

# Keys of the known vendors and bearer tokens, whole or with stars in the middle, as error messages quote them.
_KEY_LIKE = re.compile(r"(?i)\b(?:(?:sk|pk|rk|gsk|hf|xai|key)[-_]|bearer\s+|AIza)[\w*.\-]{4,}")
_WORD = re.compile(r"[^\s\"'<>]+")
_TELLING = 8
"""Characters of a key in a row that are too many to be shown."""
UNREADABLE_LIMIT = 2000
"""Characters of unreadable text that are kept, so that the model and people can see the error."""
_MOST = 10**9
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_ID_LIMIT = 40  # OpenAI's; Anthropic's ids are shorter
_NAME_LIMIT = 64
_LONGEST_KEPT = 200


def replace_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which JSON permits and UTF-8 does not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode_safe(body: dict[str, Any]) -> bytes:
    """Encode the body of a request as JSON with well-formed text, because results of tools may contain any character.
    Mappings of any type are objects.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=dict)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text).encode()


def single_line(text: str, limit: int) -> str:
    """Return the text without line breaks and control characters, truncated to `limit` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def without_keys(text: str, key: str) -> str:
    """Return the text without `key`, its parts, and other text that looks like a key."""
    if len(key) >= 4:
        text = text.replace(key, "***")
    parts = {key[n : n + _TELLING] for n in range(len(key) - _TELLING + 1)}
    if any(part in text for part in parts):
        text = _WORD.sub(lambda word: "***" if any(part in word[0] for part in parts) else word[0], text)
    return _KEY_LIKE.sub("***", text)


def parse_call(call_id: str, name: str, text: str) -> ToolCall:
    """Return a call made of the model's text. Text that is not one JSON object is kept as `unreadable`; no text means
    no arguments.
    """
    name, arguments = name[:LONGEST_NAME], parse_object(text)
    if arguments is None:
        return ToolCall(call_id, name, unreadable=replace_surrogates(text[:UNREADABLE_LIMIT]))
    return ToolCall(call_id, name, arguments)


def encode_arguments(call: ToolCall) -> dict[str, Any]:
    """Encode arguments for the history as a JSON object, because services parse the history too."""
    return {"_unreadable": call.unreadable} if call.unreadable else dict(call.arguments)


def get_field(value: object, name: str) -> Any:
    """Return the field as it is, or None if it is missing."""
    return value.get(name) if isinstance(value, dict) else None


def get_list(value: object, name: str) -> list[Any]:
    """Return the list in the field; empty if it is not a list."""
    field = value.get(name) if isinstance(value, dict) else None
    return field if isinstance(field, list) else []


def text(value: object, name: str) -> str:
    """Return the text in the field, empty if it is missing or has another type."""
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, str) or not field:
        return ""
    return field if field.isascii() else replace_surrogates(field)


def json_text(value: object, name: str) -> str:
    """Return the JSON text in the field. Some servers send an object instead of its text; then return the object's
    text.
    """
    field = value.get(name) if isinstance(value, dict) else None
    return text(value, name) if isinstance(field, str) or field is None else json.dumps(field)


def get_count(value: object, name: str) -> int:
    """Return the number in the field, without its fraction; 0 if it is missing, negative or above `_MOST`."""
    field = value.get(name) if isinstance(value, dict) else None
    if isinstance(field, bool) or not isinstance(field, int | float) or not 0 <= field <= _MOST:
        return 0
    return int(field)


def storable(values: list[Any]) -> list[Any]:
    """Return the list with well-formed text; empty if it is not valid JSON or too deep."""
    if not values:
        return []
    try:
        written = json.dumps(values, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return []
    stored: list[Any] = json.loads(replace_surrogates(written))
    return [] if exceeds_json_depth(stored) else stored


def tokens(read: int, written: int, cached: int = 0, cache_writes: int = 0, reasoning: int = 0) -> Usage:
    """Return the usage of a reply. A part never exceeds its total, so that no difference is negative."""
    cached = min(cached, read)
    return Usage(read, written, cached, min(cache_writes, read - cached), min(reasoning, written))


class CallIds:
    """The ids of the calls in one request: unique in it, of accepted characters and length, and the same every time
    the same transcript is written, so that the vendor's cache holds.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._current: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        """Return the id for a call. Later results with `call_id` belong to this call."""
        written = base = _FOREIGN.sub("_", call_id)[:_ID_LIMIT] or "call"
        count = 1
        while written in self._used:
            count += 1
            suffix = f"_{count}"
            written = base[: _ID_LIMIT - len(suffix)] + suffix
        self._used.add(written)
        self._current[call_id] = written
        return written

    def of_result(self, call_id: str) -> str:
        """Return the id for the result of the latest call with that id."""
        return self._current.get(call_id) or _FOREIGN.sub("_", call_id)[:_ID_LIMIT]


def distinct_ids(ids: list[str]) -> list[str]:
    """Return the ids of one reply's calls. Missing, repeated and unusable ids are replaced by generated ones."""
    distinct: list[str] = []
    for n, call_id in enumerate(ids, 1):
        candidate = call_id if 0 < len(call_id) <= _LONGEST_KEPT else f"call_{n}"
        while candidate in distinct or (candidate != call_id and candidate in ids):
            candidate = f"{candidate}_{n}"
        distinct.append(candidate)
    return distinct


def valid_name(name: str) -> str:
    """Return a tool's name that vendors accept in a transcript."""
    return _FOREIGN.sub("_", name)[:_NAME_LIMIT] or "unnamed"
