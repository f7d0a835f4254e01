"""Numbers of the real Slack that a test may want smaller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Limits:
    """Seconds of the clock, bytes, counts.

    The sizes of a stream were measured by others, not documented: one with task cards ends far sooner than pure text.
    """

    stream_lifetime: float = 300
    stream_size: int = 11_000
    stream_text_size: int = 39_000
    trigger_lifetime: float = 3
    response_url_lifetime: float = 1800
    response_url_uses: int = 5
    status_lifetime: float = 120
    connections: int = 10
