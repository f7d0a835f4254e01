"""The end of what a server's process wrote to its standard error.

Kept for the sentence that says why a server failed, and for debugging; it never reaches the terminal. Used by the
stdio transport.
"""

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
    """The last 20 lines, 500 characters of each, without secrets."""

    def __init__(self, server: str, redact: Redaction) -> None:
        self._server = server
        self._redact = redact
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._unfinished = b""
        self._ended = asyncio.Event()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines, oldest first; blank ones are left out."""
        return tuple(self._lines)

    def data_received(self, data: bytes) -> None:
        """Take what the process wrote."""
        *finished, unfinished = (self._unfinished + data).split(b"\n")
        # A line without an end must not grow without an end; enough is kept to find a secret that lies across a cut.
        self._unfinished = unfinished[: 8 * _LINE_LENGTH]
        for line in finished:
            self._keep(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody can write any more, for whatever reason."""
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
        """A file for the process to write to. Close it when the process has it; what was written before the end of
        the block is in the tail after it.
        """
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
