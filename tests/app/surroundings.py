"""An empty folder, an environment without any of our variables, and the program in it."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.settings import Settings

PROJECT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0


def bare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in `folder`, whatever this machine has set."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(folder)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """For a process of its own."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(PROJECT), **variables}


def program(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `countersign` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "bot", *words],
        cwd=folder,
        env=environment(folder, **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


@dataclass
class Service:
    """`countersign run` in a process of its own; `log` is what it has written so far."""

    process: subprocess.Popen[bytes]
    log: bytearray = field(default_factory=bytearray)

    def says(self, text: str) -> None:
        """Wait until it has written this."""
        assert self.process.stderr is not None
        ends = time.monotonic() + LIMIT_SECONDS
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stderr, selectors.EVENT_READ)
            while text.encode() not in self.log:
                assert ready.select(max(0.0, ends - time.monotonic())), self.log.decode()
                more = os.read(self.process.stderr.fileno(), 65_536)
                assert more, self.log.decode()
                self.log += more

    def end(self, signal_number: int) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(signal_number)
        _, rest = self.process.communicate(timeout=LIMIT_SECONDS)
        self.log += rest
        return self.process.returncode

    @property
    def lines(self) -> list[str]:
        """Everything it has written."""
        return self.log.decode().splitlines()


@contextmanager
def service(folder: Path, *words: str, **variables: str) -> Iterator[Service]:
    """`countersign run`, gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bot", "run", *words],
        cwd=folder,
        env=environment(folder, **variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Service(process)
    finally:
        process.kill()
        process.communicate()
