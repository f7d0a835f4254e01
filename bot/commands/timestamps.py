"""Points in time as people type them: a date, a date and a time, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime

MOMENT = "2026-08-31, 2026-08-31T14:30, 12h or 7d"
"""How a point in time is written, for usage lines. Without an offset it is UTC."""

_AGO = re.compile(r"(\d{1,5})\s*(m|min|h|d|w)", re.IGNORECASE)
_SECONDS = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def parse_time(text: str, now: float) -> float:
    """Epoch seconds of what somebody typed; `now` is what `7d` counts back from. Raises ValueError."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - int(ago[1]) * _SECONDS[ago[2].lower()]
    moment = datetime.fromisoformat(text.strip())
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except OverflowError as error:
        raise ValueError("before or after all the years that can be written") from error
