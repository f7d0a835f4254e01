"""Screens for an operator at a terminal, and the lines that they type, while other work goes on."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

_CLEAR = "\x1b[2J\x1b[H"
_CHUNK = 4096


class OperatorTerminal:
    """Prints screens to `out` and reads lines. `interactive` is False without a keyboard."""

    def __init__(self, out: TextIO, *, interactive: bool) -> None:
        self._out = out
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = ""
        self.interactive = interactive
        self.has_ended = False
        """True if no further line can come."""

    def print(self, text: str = "") -> None:
        """Print lines."""
        self._out.write(f"{text}\n")
        self._out.flush()

    def screen(self, text: str) -> None:
        """Print a screen, on a terminal in place of the one before."""
        self.print(f"{_CLEAR}{text}" if self.interactive and self._out.isatty() else f"\n{text}")

    async def line(self) -> str | None:
        """Return the next typed line, None at the end of the input."""
        if self.has_ended:
            return None
        line = await self._lines.get()
        self.has_ended = line is None
        return line

    def forget_typed(self) -> None:
        """Drop lines that were typed before they were asked for."""
        while not self._lines.empty():
            self.has_ended = self._lines.get_nowait() is None

    def feed(self, data: bytes) -> None:
        """Take typed bytes; none at the end of the input."""
        if not data:
            self._lines.put_nowait(None)
            return
        *lines, self._rest = (self._rest + data.decode("utf-8", "replace")).split("\n")
        for line in lines:
            self._lines.put_nowait(line.strip())


@asynccontextmanager
async def open_operator_terminal(out: TextIO) -> AsyncIterator[OperatorTerminal]:
    """Read standard input while the block runs."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    terminal = OperatorTerminal(out, interactive=sys.stdin.isatty())

    def read() -> None:
        data = os.read(descriptor, _CHUNK)
        terminal.feed(data)
        if not data:
            loop.remove_reader(descriptor)

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:  # a file, which is always ready
        terminal.feed(await asyncio.to_thread(sys.stdin.buffer.read))
        terminal.feed(b"")
    try:
        yield terminal
    finally:
        loop.remove_reader(descriptor)
