"""A real pseudo-terminal, and an emulated screen with the displayed text."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TextIO

import pyte

from bot.platforms.console.lines import PROMPT

LIMIT_SECONDS = 60.0


def prompt_line(text: str = "") -> str:
    """Return the prompt with a typed line."""
    return f"{PROMPT} {text}".rstrip()


class PseudoTerminal:
    """A pseudo-terminal. The program uses `stdin` and `stdout`; the test reads the screen and presses keys."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        self._theirs = theirs
        self.stdin: TextIO = os.fdopen(os.dup(theirs), "r", encoding="utf-8")
        self.stdout: TextIO = os.fdopen(os.dup(theirs), "w", encoding="utf-8")
        self.raw = b""
        self._seen_at = (-1, 0, 0)
        self._seen: tuple[list[str], list[str]] = ([], [])
        self._screen = pyte.HistoryScreen(columns, rows, history=2000, ratio=0.5)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = asyncio.Event()
        self._size(columns, rows)
        self.modes = termios.tcgetattr(theirs)
        os.set_blocking(self._ours, False)

    async def __aenter__(self) -> PseudoTerminal:
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        self.stdin.close()
        self.stdout.close()
        os.close(self._theirs)
        os.close(self._ours)

    @property
    def lines(self) -> list[str]:
        """Lines of the screen, without the empty lines at its end."""
        return self._read_off()[1][:]

    @property
    def text(self) -> str:
        """Scrolled lines and the screen."""
        scrolled, lines = self._read_off()
        return "\n".join([*scrolled, *lines])

    @property
    def is_restored(self) -> bool:
        """True if the terminal has its initial mode and a visible cursor."""
        return termios.tcgetattr(self._theirs)[:4] == self.modes[:4] and not self._screen.cursor.hidden

    @property
    def colours(self) -> set[str]:
        """The colours on the screen."""
        return {cell.fg for row in self._screen.buffer.values() for cell in row.values()} - {"default"}

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def presses(self, keys: str, *shown: str) -> None:
        """Press keys, and wait until these texts are on the screen."""
        self.press(keys)
        await self.shows(*shown)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        self._size(columns, rows)
        os.kill(os.getpid(), signal.SIGWINCH)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition of the screen. `what` names it in the error."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never saw {what}; the screen is\n{self.text}") from None

    async def shows(self, *texts: str) -> None:
        for text in texts:
            await self.until(lambda text=text: text in self.text, repr(text))  # type: ignore[misc]

    async def hides(self, text: str) -> None:
        await self.until(lambda: text not in "\n".join(self.lines), f"{text!r} go away")

    async def prompts(self, text: str = "") -> None:
        """Wait until the last line is the prompt with this text."""
        wanted = prompt_line(text)
        await self.until(lambda: self.lines[-1] == wanted, f"the prompt {wanted!r}")

    def _read_off(self) -> tuple[list[str], list[str]]:
        """Return the scrolled lines and the lines of the screen, cached until the next output or resize."""
        screen = self._screen
        now = len(self.raw), screen.columns, screen.lines
        if self._seen_at != now:
            scrolled = [_line(row) for row in screen.history.top]
            lines = [_line(screen.buffer[y]) for y in range(screen.lines)]
            self._seen_at, self._seen = now, (scrolled, "\n".join(lines).rstrip().split("\n"))
        return self._seen

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        data = os.read(self._ours, 65_536)
        self.raw += data
        self._stream.feed(data)
        self._changed.set()


def _line(row: Mapping[int, Any]) -> str:
    """Return a line of cells as text. Cells after the last output and second cells of wide characters are empty."""
    return "".join([row[x].data for x in range(max(row, default=-1) + 1)]).rstrip()
