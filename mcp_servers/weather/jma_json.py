"""Defensive readers for the agency's JSON, whose types and texts are not trusted."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import timedelta, timezone
from typing import Any

JST = timezone(timedelta(hours=9), "JST")
"""Japan Standard Time, the zone of every date of the agency, without summer time."""


class Unreadable(Exception):
    """The value is not in the agency's format."""


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """Return the value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else ()


def line(value: object, limit: int = 100) -> str:
    """Return one line of clean text: no control characters, single spaces, at most `limit` characters."""
    return _truncate(" ".join(_printable(value).split()), limit)


def paragraphs(value: object, limit: int) -> str:
    """Return clean text of several lines, without empty ones, at most `limit` characters."""
    lines = (" ".join(part.split()) for part in _printable(value).splitlines())
    return _truncate("\n".join(part for part in lines if part), limit)


def _printable(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(
        " " if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character != "\n" else character
        for character in text
    )


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
