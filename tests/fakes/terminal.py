"""A program on a pseudo-terminal, as a person has it before them: its screen, its keys, its window, its end.

    async with ProgramOnTerminal((*COUNTERSIGN, "chat"), folder, environment) as program:
        await program.shows("countersign")
        program.press("hello\\r")
        ...
        assert await program.ended() == 0

The program is the leader of its own session and the terminal is its controlling one, so that it hears of a new window
size and of a lost line as it would in a window. It is killed when the block is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.platforms.console.terminal import PseudoTerminal

PATIENCE = 20.0
"""Seconds for anything a program does: much longer than it takes, even on a busy machine."""


class ProgramOnTerminal(PseudoTerminal):
    """A program that runs. `raw` is every byte it wrote, `text` and `lines` what is to be seen."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        super().__init__(columns, rows)
        self._command = tuple(command)
        self._folder = folder
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> ProgramOnTerminal:
        await super().__aenter__()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=self._folder,
            env=self._environment,
            stdin=self.stdin,
            stdout=self.stdout,
            stderr=self.stdout,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await super().__aexit__(kind, error, at)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something is on the screen."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"never saw {what}; the screen is\n{self.text}") from None

    def type(self, line: str) -> None:
        """Type a line and send it."""
        self.press(f"{line}\r")

    async def asks(self, line: str) -> None:
        """Wait for the prompt, then type a line and send it."""
        await self.prompts()
        self.type(line)

    async def ended(self) -> int:
        """The exit code, negative for the signal that killed it."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"it does not end; the screen is\n{self.text}") from None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
