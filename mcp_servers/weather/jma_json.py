"""Careful reading of the agency's JSON: nothing about its shape or its text is taken on trust."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import timedelta, timezone
from typing import Any

JST = timezone(timedelta(hours=9), "JST")
"""Japan Standard Time, which every date of the agency is in; it has no summer time."""


class Unreadable(Exception):
    """The value is not what the agency publishes at this address."""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else ()


def line(value: object, limit: int = 100) -> str:
    """One line of clean text: no control characters, single spaces, `limit` characters at most."""
    return _shortened(" ".join(_printable(value).split()), limit)


def paragraphs(value: object, limit: int) -> str:
    """Clean text of several lines, without empty ones, `limit` characters at most."""
    lines = (" ".join(each.split()) for each in _printable(value).splitlines())
    return _shortened("\n".join(each for each in lines if each), limit)


def _printable(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(" " if unicodedata.category(each) in ("Cc", "Cf", "Cs") and each != "\n" else each for each in text)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
