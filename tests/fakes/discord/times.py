"""Times as Discord writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(moment: float) -> str:
    """Return a moment in seconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(moment, UTC).isoformat()
