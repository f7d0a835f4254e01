"""Counter of lines in a server's standard output that are not messages. One warning is logged if there are many.

A few lines at the start are common and harmless.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

_MOST = 20
"""Maximum number of lines in a minute without a warning."""
_SECONDS = 60.0
_KEPT_BYTES = 2_000
_SHOWN = 200


class Junk(ValueError):
    """Beginning of a line that is not a message."""

    def __init__(self, line: bytes) -> None:
        super().__init__("a line that is no JSON-RPC message")
        self.line = line[:_KEPT_BYTES]


class NoiseCounter:
    """Count of one server's lines. `clock` is in seconds."""

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._heard: deque[float] = deque(maxlen=_MOST + 1)
        self._example = ""

    @property
    def example(self) -> str:
        """One of the lines, shortened; empty unless there were more than 20 in a minute."""
        return self._example

    def heard(self, junk: Junk, clean: Callable[[str], str]) -> None:
        """Count a line. `clean` redacts a text."""
        now = self._clock()
        self._heard.append(now)
        if self._example or len(self._heard) <= _MOST or now - self._heard[0] > _SECONDS:
            return
        line = " ".join(clean(junk.line.decode("utf-8", "replace")).split())
        self._example = f"{line[:_SHOWN]}…" if len(line) > _SHOWN else line or "an empty line"
        log.warning(
            "MCP server %s writes to its standard output what is no message, more than %d lines a minute. Fix: let it "
            "log to its standard error. One of them: %s",
            self._server,
            _MOST,
            self._example,
        )
