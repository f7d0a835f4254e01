"""Text that a server writes beside its answers: standard error, log messages, stray lines of standard output.

The last lines of each are stored for error messages and for the diagnosis, redacted. They are not copied to the
terminal, and no decision depends on them. Log messages: MCP specification 2026-07-28, server/utilities/logging.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TextIO, cast

import anyio

from bot.domain.characters import visible
from bot.mcp.redaction import Redaction

log = logging.getLogger(__name__)

_STDERR_LINES = 20
_STDERR_LINE_LENGTH = 500
_STDERR_DRAIN_SECONDS = 0.3
_LOG_LINES = 5
_LOG_LINES_PER_WINDOW = 20
"""Maximum number of messages in a minute; later ones are dropped."""
_LOG_WINDOW_SECONDS = 60.0
_LONGEST_LINE = 200
WORTH_TELLING = ("warning", "error", "critical", "alert", "emergency")
"""Levels that are shown to users (RFC 5424, as MCP names them)."""
LEVEL: Literal["warning"] = "warning"
"""Minimum level that servers are asked for."""
_LINES_PER_WINDOW = 20
"""Maximum number of lines in a minute without a warning."""
_WINDOW_SECONDS = 60.0
_STRAY_LINE_BYTES = 2_000


class StderrTail(asyncio.Protocol):
    """Last 20 lines, 500 characters of each, redacted."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._unfinished = b""
        self._ended = asyncio.Event()

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines, oldest first, without blank ones."""
        return tuple(self._lines)

    def data_received(self, data: bytes) -> None:
        """Add output of the process."""
        *finished, unfinished = (self._unfinished + data).split(b"\n")
        # Cut a line without an end, but keep enough to find a secret across the cut.
        self._unfinished = unfinished[: 8 * _STDERR_LINE_LENGTH]
        for line in finished:
            self._keep(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep the last line when the pipe is closed."""
        del exc
        self._keep(self._unfinished)
        self._unfinished = b""
        self._ended.set()

    def _keep(self, raw: bytes) -> None:
        line = self._redact(visible(raw.decode("utf-8", "replace"))).strip()[:_STDERR_LINE_LENGTH]
        if line:
            self._lines.append(line)
            log.debug("%s: %s", self._server, line)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[TextIO]:
        """Open a file for the process's stderr. Close it after the start. All output is in the tail after the block."""
        read_end, write_end = os.pipe()
        reader, writer = os.fdopen(read_end, "rb", buffering=0), os.fdopen(write_end, "w")
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, reader)
        except BaseException:
            reader.close()
            writer.close()
            raise
        try:
            yield cast("TextIO", writer)
        finally:
            writer.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STDERR_DRAIN_SECONDS):
                await self._ended.wait()
            transport.close()


def _one_line(text: str, clean: Callable[[str], str]) -> str:
    """Return a text on one line, redacted by `clean` and shortened."""
    line = " ".join(clean(text).split())
    return f"{line[:_LONGEST_LINE]}…" if len(line) > _LONGEST_LINE else line


class ServerLog:
    """Last messages of one server at the levels `WORTH_TELLING`, oldest first: level and text, on one line. `clock` is
    in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_LOG_LINES_PER_WINDOW)
        self.last: deque[tuple[str, str]] = deque(maxlen=_LOG_LINES)

    def add(self, level: str, data: Any, clean: Callable[[str], str]) -> None:
        """Add a message. `data` is any JSON; `clean` redacts a text."""
        if level not in WORTH_TELLING:
            return
        now = self._clock()
        if len(self._times) == _LOG_LINES_PER_WINDOW and now - self._times[0] < _LOG_WINDOW_SECONDS:
            return
        self._times.append(now)
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)
        self.last.append((level, _one_line(text, clean)))


class StrayLine(ValueError):
    """Beginning of a line that is not a message."""

    def __init__(self, line: bytes) -> None:
        super().__init__("a line that is no JSON-RPC message")
        self.line = line[:_STRAY_LINE_BYTES]


class StrayLineCounter:
    """Count of one server's lines. `example` is one of them, shortened; empty unless there were more than 20 in a
    minute. `clock` is in seconds.
    """

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._times: deque[float] = deque(maxlen=_LINES_PER_WINDOW + 1)
        self.example = ""

    def add(self, stray: StrayLine, clean: Callable[[str], str]) -> None:
        """Count a line. `clean` redacts a text."""
        now = self._clock()
        self._times.append(now)
        if self.example or len(self._times) <= _LINES_PER_WINDOW or now - self._times[0] > _WINDOW_SECONDS:
            return
        self.example = _one_line(stray.line.decode("utf-8", "replace"), clean) or "an empty line"
        log.warning(
            "MCP server %s writes to its standard output what is no message, more than %d lines a minute. Fix: let it "
            "log to its standard error. One of them: %s",
            self._server,
            _LINES_PER_WINDOW,
            self.example,
        )
