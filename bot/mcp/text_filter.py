"""Foreign text made fit to be kept, and schemas whose words are made fit to be read.

Called wherever text of a server enters. It knows nothing of MCP.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_DESCRIBING = ("title", "description")
_LITERAL = ("enum", "const", "default", "examples")


def strip_unstorable(text: str) -> str:
    """The text without NUL and lone surrogates, which no database and no UTF-8 encoder takes."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("", text)


def storable_json(value: Any) -> Any:
    """A JSON value with every string in it made storable, and with the names of infinite numbers, which a server spells
    as `1e400` and JSON does not have.
    """
    match value:
        case str():
            return strip_unstorable(value)
        case list():
            return [storable_json(each) for each in value]
        case dict():
            return {strip_unstorable(str(key)): storable_json(each) for key, each in value.items()}
        case float() if not math.isfinite(value):
            return json.dumps(value)
        case _:
            return value


def clean_schema(schema: Any, clean: Callable[[str], str]) -> Any:
    """A JSON Schema with its titles and descriptions cleaned; values that arguments are compared with stay."""
    match schema:
        case list():
            return [clean_schema(each, clean) for each in schema]
        case dict():
            return {key: _cleaned_entry(key, value, clean) for key, value in schema.items()}
        case _:
            return schema


def _cleaned_entry(key: str, value: Any, clean: Callable[[str], str]) -> Any:
    if key in _LITERAL:
        return value
    if key in _DESCRIBING and isinstance(value, str):
        return clean(value)
    return clean_schema(value, clean)
