"""The program in an empty folder, with an environment that sets none of its variables."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from bot.settings import Settings
from tests.fakes import AUTHORITY
from tests.fakes.programs import Program

PROJECT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0


def bare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to `folder` and unset all variables of the settings."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(folder)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a child process."""
    outside = {"PATH": os.environ["PATH"], "SSL_CERT_FILE": AUTHORITY}
    return {**outside, "HOME": str(folder), "PYTHONPATH": str(PROJECT), "CONSOLE": "false", **variables}


def program(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `countersign` and wait until it exits."""
    null = os.open(os.devnull, os.O_RDONLY)
    with TemporaryFile("w+", encoding="utf-8") as out, TemporaryFile("w+", encoding="utf-8") as err:
        try:
            begun = Program(
                ("bot", *words), folder, environment(folder, **variables), (null, out.fileno(), err.fileno())
            )
        finally:
            os.close(null)
        try:
            code = begun.wait_for(LIMIT_SECONDS)
        finally:
            begun.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


@dataclass
class Service:
    """`countersign run` in a child process. `log` is its output so far; `reading` is the pipe with the rest."""

    process: Program
    reading: IO[bytes]
    log: bytearray = field(default_factory=bytearray)

    def says(self, text: str) -> None:
        """Wait until the log contains `text`."""
        ends = time.monotonic() + LIMIT_SECONDS
        while text.encode() not in self.log:
            more = self._more(ends)
            assert more, self.log.decode()
            self.log += more

    def end(self, signal_number: int) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(signal.Signals(signal_number))
        ends = time.monotonic() + LIMIT_SECONDS
        while more := self._more(ends):
            self.log += more
        return self.process.wait_for(LIMIT_SECONDS)

    def _more(self, ends: float) -> bytes:
        """Return the next piece of output; empty at its end."""
        with selectors.DefaultSelector() as ready:
            ready.register(self.reading, selectors.EVENT_READ)
            assert ready.select(max(0.0, ends - time.monotonic())), self.log.decode()
        return os.read(self.reading.fileno(), 65_536)

    @property
    def lines(self) -> list[str]:
        """Lines of output so far."""
        return self.log.decode().splitlines()


@contextmanager
def service(folder: Path, *words: str, **variables: str) -> Iterator[Service]:
    """Start `countersign run` and kill it when the block ends."""
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    with open(reading, "rb", buffering=0) as log:  # noqa: PTH123 - a descriptor
        try:
            begun = Program(("bot", "run", *words), folder, environment(folder, **variables), (null, null, writing))
        finally:
            os.close(writing)
            os.close(null)
        try:
            yield Service(begun, log)
        finally:
            begun.kill()
            begun.wait_for(LIMIT_SECONDS)
