"""Points in time as text."""

from __future__ import annotations

from datetime import UTC, datetime


def format_utc(at: float) -> str:
    """Return epoch seconds as `2026-08-31 14:30:00`, in UTC; the number itself if it is out of range."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return repr(at)
