"""End of a server process's standard error, for error messages and debugging. It is not copied to the terminal."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO, cast

import anyio

from bot.domain.characters import visible
from bot.mcp.redaction import Redaction

log = logging.getLogger(__name__)

_LINES = 20
_LINE_LENGTH = 500
_DRAIN_SECONDS = 0.3


class StderrTail(asyncio.Protocol):
    """Last 20 lines, 500 characters of each, redacted."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._lines: deque[str] = deque(maxlen=_LINES)
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
        self._unfinished = unfinished[: 8 * _LINE_LENGTH]
        for line in finished:
            self._keep(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep the last line when the pipe is closed."""
        del exc
        self._keep(self._unfinished)
        self._unfinished = b""
        self._ended.set()

    def _keep(self, raw: bytes) -> None:
        line = self._redact(visible(raw.decode("utf-8", "replace"))).strip()[:_LINE_LENGTH]
        if line:
            self._lines.append(line)
            log.debug("%s: %s", self._server, line)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[TextIO]:
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
            with anyio.CancelScope(shield=True), anyio.move_on_after(_DRAIN_SECONDS):
                await self._ended.wait()
            transport.close()
