"""Which characters of foreign text may go on: what people and models read, and what a database can hold.

Called wherever text of a server enters. It knows nothing of MCP.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_KEPT = frozenset("\n\t")
_PLAIN = str.maketrans(dict.fromkeys(_KEPT, " "))
_UNSEEN = frozenset(("Cc", "Cf", "Cs"))
_VARIATION_SELECTORS = range(0xE0100, 0xE01F0)
_DESCRIBING = ("title", "description")
_LITERAL = ("enum", "const", "default", "examples")


def visible(text: str) -> str:
    """The text without what nobody sees: a terminal's escape sequences, control, zero-width, bidirectional and tag
    characters. Hidden text in a tool's description is the classic way to give a model orders that no reviewer reads.
    """
    bare = _ESCAPES.sub("", text)
    if bare.isascii() and bare.translate(_PLAIN).isprintable():  # most text is, and there may be megabytes of it
        return bare
    return "".join(char for char in bare if char in _KEPT or not _hidden(char))


def storable(text: str) -> str:
    """The text without NUL and lone surrogates, which no database and no UTF-8 encoder takes."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("", text)


def storable_json(value: Any) -> Any:
    """A JSON value with every string in it made storable."""
    match value:
        case str():
            return storable(value)
        case list():
            return [storable_json(each) for each in value]
        case dict():
            return {storable(str(key)): storable_json(each) for key, each in value.items()}
        case _:
            return value


def cleaned_schema(schema: Any, clean: Callable[[str], str]) -> Any:
    """A JSON Schema with its titles and descriptions cleaned; values that arguments are compared with stay."""
    match schema:
        case list():
            return [cleaned_schema(each, clean) for each in schema]
        case dict():
            return {key: _cleaned_entry(key, value, clean) for key, value in schema.items()}
        case _:
            return schema


def _cleaned_entry(key: str, value: Any, clean: Callable[[str], str]) -> Any:
    if key in _LITERAL:
        return value
    if key in _DESCRIBING and isinstance(value, str):
        return clean(value)
    return cleaned_schema(value, clean)


def _hidden(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN or ord(char) in _VARIATION_SELECTORS
