"""Log messages of a server (MCP specification 2026-07-28, server/utilities/logging).

Only the last ones are kept, cleaned, for display. No decision depends on them.
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
"""Maximum number of messages in a minute; later ones are dropped."""
_SECONDS = 60.0
_SHOWN = 200
WORTH_TELLING = ("warning", "error", "critical", "alert", "emergency")
"""Levels that are shown to users (RFC 5424, as MCP names them)."""
LEVEL: Literal["warning"] = "warning"
"""Minimum level that servers are asked for."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One message: level and text, on one line."""

    level: str
    text: str


class ServerLog:
    """Last messages of one server at the levels `WORTH_TELLING`. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: deque[float] = deque(maxlen=_A_MINUTE)
        self._kept: deque[LogLine] = deque(maxlen=_KEPT)

    @property
    def last(self) -> tuple[LogLine, ...]:
        """Last messages, oldest first."""
        return tuple(self._kept)

    def heard(self, level: str, data: Any, clean: Callable[[str], str]) -> None:
        """Add a message. `data` is any JSON; `clean` redacts a text."""
        if level not in WORTH_TELLING:
            return
        now = self._clock()
        if len(self._heard) == _A_MINUTE and now - self._heard[0] < _SECONDS:
            return
        self._heard.append(now)
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        line = " ".join(clean(text).split())
        self._kept.append(LogLine(level, f"{line[:_SHOWN]}…" if len(line) > _SHOWN else line))
