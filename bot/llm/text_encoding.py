"""Text from elsewhere (models, their services, tools, people), made safe to keep, to send and to show.

Called by the provider modules. Knows no vendor.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Keys of the known vendors and bearer tokens, whole or with stars in the middle, as error messages quote them.
_KEY_LIKE = re.compile(r"(?i)\b(?:(?:sk|pk|rk|gsk|hf|xai|key)[-_]|bearer\s+|AIza)[\w*.\-]{4,}")
_WORD = re.compile(r"[^\s\"'<>]+")
_TELLING = 8
"""Characters of a key in a row that are too many to be shown."""


def replace_surrogates(text: str) -> str:
    """The text as it can be stored: JSON may carry half a surrogate pair, UTF-8 may not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encode_safe(body: dict[str, Any]) -> bytes:
    """The body of a request as JSON in which all text is well formed: a tool's result can hold anything. Mappings of
    any kind are objects.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=dict)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text).encode()


def single_line(text: str, limit: int) -> str:
    """The text without line breaks and control characters, at most `limit` characters long."""
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
