"""Parser of times: a date, a date with a time, or an age."""

from __future__ import annotations

import re
from datetime import UTC, datetime

MOMENT = "2026-08-31, 2026-08-31T14:30, 12h or 7d"
"""Accepted formats for usage lines. Times without an offset are UTC."""

_AGO = re.compile(r"(\d{1,5})\s*(m|min|h|d|w)", re.IGNORECASE)
_SECONDS = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def parse_time(text: str, now: float) -> float:
    """Parse a time into epoch seconds; `7d` counts back from `now`. Raises ValueError."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - int(ago[1]) * _SECONDS[ago[2].lower()]
    moment = datetime.fromisoformat(text.strip())
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except OverflowError as error:
        raise ValueError("before or after all the years that can be written") from error
