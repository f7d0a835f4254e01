"""What a server says of itself while it works: log messages (MCP specification 2026-07-28, server/utilities/logging).

The `session` hears them, the server's `server_status` keeps the last ones, the doctor shows them. They are a server's
own words: cleaned before they are kept, few of them, and nothing is decided by them.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

_KEPT = 5
_A_MINUTE = 20
"""Messages within a minute that are looked at: who says more is not listened to until it is over."""
_SECONDS = 60.0
_SHOWN = 200
WORTH_TELLING = ("warning", "error", "critical", "alert", "emergency")
"""The levels that people are shown (RFC 5424, as MCP names them)."""
LEVEL: Literal["warning"] = "warning"
"""The least that a server is asked for, where it asks."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One message: its level and its text, on one line."""

    level: str
    text: str


class ServerLog:
    """The last messages of one server that are worth telling. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: deque[float] = deque(maxlen=_A_MINUTE)
        self._kept: deque[LogLine] = deque(maxlen=_KEPT)

    @property
    def last(self) -> tuple[LogLine, ...]:
        """The last ones, oldest first."""
        return tuple(self._kept)

    def heard(self, level: str, data: Any, clean: Callable[[str], str]) -> None:
        """Another one. `data` is any JSON; `clean` takes from a text what nobody may see."""
        if level not in WORTH_TELLING:
            return
        now = self._clock()
        if len(self._heard) == _A_MINUTE and now - self._heard[0] < _SECONDS:
            return
        self._heard.append(now)
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        line = " ".join(clean(text).split())
        self._kept.append(LogLine(level, f"{line[:_SHOWN]}…" if len(line) > _SHOWN else line))
