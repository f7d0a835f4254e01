"""Text from elsewhere (models, their services, tools, people), made safe to keep, to send and to show.

Called by the provider modules. Knows no vendor.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Keys of the known vendors and bearer tokens, whole or with stars in the middle, as error messages quote them.
_KEY_LIKE = re.compile(r"(?i)\b(?:(?:sk|pk|rk|key)[-_]|bearer\s+)[\w*.\-]{4,}")


def well_formed(text: str) -> str:
    """The text as it can be stored: JSON may carry half a surrogate pair, UTF-8 may not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sendable(body: dict[str, Any]) -> bytes:
    """The body of a request as JSON in which all text is well formed: a tool's result can hold anything. Mappings of
    any kind are objects.
    """
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=dict)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return well_formed(text).encode()


def one_line(text: str, limit: int) -> str:
    """The text without line breaks and control characters, at most `limit` characters long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def without_keys(text: str, key: str) -> str:
    """The text with `key`, and whatever else looks like a key, taken out."""
    if len(key) >= 4:
        text = text.replace(key, "***")
    return _KEY_LIKE.sub("***", text)
