"""What texts look like that a form asks for: the formats that servers may name (MCP specification 2026-07-28,
client/elicitation). Used by `arguments`.

Only what is surely wrong is refused: the server itself is the judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, time

_LONGEST_EMAIL = 320
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s.]+(?:\.[^@\s.]+)*")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)")


def _email(text: str) -> bool:
    return len(text) <= _LONGEST_EMAIL and _EMAIL.fullmatch(text) is not None


def _uri(text: str) -> bool:
    return _URI.fullmatch(text) is not None


def _date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _date_time(text: str) -> bool:
    """As RFC 3339 has it, which wants the zone."""
    parts = _DATE_TIME.fullmatch(text)
    try:
        return parts is not None and _date(parts[1]) and time.fromisoformat(parts[2]) is not None
    except ValueError:
        return False


FORMATS: Mapping[str, Callable[[str], bool]] = {"email": _email, "uri": _uri, "date": _date, "date-time": _date_time}
"""Whether a text may be one, by the name of the format."""
