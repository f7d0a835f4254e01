"""A program on a pseudo-terminal, as a person has it before them: its screen, its keys, its window, its end.

    async with ProgramOnTerminal(("bot", "chat"), folder, environment) as program:
        await program.shows("countersign")
        program.type("hello")
        ...
        assert await program.wait_for_exit() == 0

The program is the leader of its own session and the terminal is its controlling one, so that it hears of a new window
size and of a lost line as it would in a window. It is killed when the block is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.fakes.programs import Program
from tests.platforms.console.terminal import PseudoTerminal

CTRL_D = "\x04"
PATIENCE = 60.0
"""Timeout of a program's steps in seconds, much longer than they take on a busy machine."""


class ProgramOnTerminal(PseudoTerminal):
    """A running program. `raw` has every byte of its output, `text` and `lines` the screen."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        columns: int = 80,
        rows: int = 24,
    ) -> None:
        super().__init__(columns, rows)
        self._arguments = tuple(arguments)
        self._folder = folder
        self._environment = dict(environment)
        self._process: Program

    async def __aenter__(self) -> ProgramOnTerminal:
        await super().__aenter__()
        try:
            theirs = self.stdin.fileno()
            self._process = await asyncio.to_thread(
                Program, self._arguments, self._folder, self._environment, (theirs, theirs, theirs), terminal=True
            )
        except BaseException:
            await super().__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._process.kill()
        await self._process.wait()
        await super().__aexit__(kind, error, at)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition of the screen holds. Fail if the program ends before it."""
        ended = asyncio.create_task(self._process.wait())
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    if ended.done():
                        self._read_the_rest()
                        assert condition(), f"it ended with {ended.result()} before {what}; {self._picture}"
                        return
                    await self._changed_or(ended)
        except TimeoutError:
            raise AssertionError(f"never saw {what}; {self._picture}") from None
        finally:
            ended.cancel()

    def type(self, line: str) -> None:
        """Type a line and send it."""
        self.press(f"{line}\r")

    async def asks(self, line: str, *shown: str) -> None:
        """Wait for the prompt, send a line, and wait until these texts are on the screen."""
        await self.prompts()
        self.type(line)
        await self.shows(*shown)

    async def leaves(self) -> int:
        """Press Ctrl-D, and wait for the end. Return the exit code."""
        self.press(CTRL_D)
        return await self.wait_for_exit()

    async def wait_for_exit(self) -> int:
        """Wait for the end. Return the exit code, negative for the signal that killed it."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"it does not end; {self._picture}") from None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window. The kernel signals the program."""
        self._screen.resize(rows, columns)
        self._size(columns, rows)

    def hang_up(self) -> None:
        """Close the window. The kernel signals the program, and the terminal is unusable afterwards."""
        asyncio.get_running_loop().remove_reader(self._ours)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._ours)  # the descriptor stays ours to close, the terminal behind it is gone
        os.close(null)

    @property
    def _picture(self) -> str:
        return f"the screen is\n{self.text}"

    async def _changed_or(self, ended: asyncio.Task[int]) -> None:
        self._changed.clear()
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()

    def _read_the_rest(self) -> None:
        """Read the remaining output of the program."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._read()
