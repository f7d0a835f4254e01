"""`countersign run` as a process in an operator's folder, with any platforms."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.programs import Program
from tests.stories.installation import Installation, becomes

PATIENCE = 60.0
"""Seconds that a program may take to start or to end on a busy machine."""


class Bot:
    """One process of `countersign run` and what it logs."""

    def __init__(self, process: Program, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def owner(self) -> str:
        """A LIKE pattern for the owner of this process's leases."""
        return f"%:{self._process.pid}:%"

    @property
    def log(self) -> str:
        """Everything it has logged so far."""
        return self._log.read_text(encoding="utf-8")

    async def logs(self, pattern: str) -> re.Match[str]:
        """Wait until it logs something like that."""
        await becomes(lambda: re.search(pattern, self.log) is not None, f"a log of {pattern!r}", PATIENCE)
        match = re.search(pattern, self.log)
        assert match is not None
        return match

    async def leaves(self) -> int:
        """Tell it to leave, as a service manager does; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    async def ends(self) -> int:
        """Wait until it ends by itself; its exit code."""
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    def limits_files(self, size: int = resource.RLIM_INFINITY) -> None:
        """Let it write no file beyond this many bytes: to the program that is a disk without space."""
        limit_files(self._process.pid, size)

    async def dies(self) -> None:
        """Kill it where it stands."""
        self._process.kill()
        await self._process.wait()


def limit_files(pid: int, size: int = resource.RLIM_INFINITY) -> None:
    """Let a program write no file beyond this many bytes: to the program that is a disk without space."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


@asynccontextmanager
async def a_bot(place: Installation, *arguments: str, **environment: str) -> AsyncIterator[Bot]:
    """Run the program in this folder from its start to its end. Its connections are not waited for."""
    log = place.folder / f"run-{len(list(place.folder.glob('run-*.log')))}.log"
    with log.open("wb") as written:
        given, written_to = os.open(os.devnull, os.O_RDONLY), written.fileno()
        everything = {**place.environment, **environment}
        try:
            process = await asyncio.to_thread(
                Program, ("bot", "run", *arguments), place.folder, everything, (given, written_to, written_to)
            )
        finally:
            os.close(given)
    bot = Bot(process, log)
    try:
        yield bot
    finally:
        await bot.dies()
