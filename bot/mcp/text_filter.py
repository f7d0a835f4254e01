"""Filters for untrusted text: storable characters, and texts of JSON Schemas."""

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
            return [storable_json(each) for each in value]
        case dict():
            return {strip_unstorable(str(key)): storable_json(each) for key, each in value.items()}
        case float() if not math.isfinite(value):
            return json.dumps(value)
        case _:
            return value


def clean_schema(schema: Any, clean: Callable[[str], str]) -> Any:
    """Return a JSON Schema with cleaned titles and descriptions. Values that arguments are compared with stay."""
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
