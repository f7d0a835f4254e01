"""The product's programs as separate processes, started by a server that has their modules loaded (`fork_server`).

Loading is most of the cost of a start: two seconds of a processor's time, compared to hundredths for a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.fakes import fork_server, forking_python
from tests.fakes.fork_server import GREETING, NUMBER
from tests.fakes.forking_python import SOCKET

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
"""Timeout of a start in seconds. The first one waits until all modules are loaded, on a busy machine."""
SERVER_HAS_ENDED = "the server that begins programs has ended: what it loads cannot be loaded"


class Program:
    """A running program. Its streams are descriptors, which their opener closes."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        terminal: bool = False,
    ) -> None:
        """Start. `arguments` are a module's name or a Python file with its arguments. `terminal` tells that standard
        input is a terminal, on which the program leads a session.
        """
        asked = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "terminal": terminal,
        }
        self._told, theirs = socket.socketpair()
        self._told.settimeout(START_SECONDS)
        with theirs:
            socket.send_fds(_control(), [json.dumps(asked).encode()], [*streams, theirs.fileno()])
        self.pid = self._hear()
        self._ending: asyncio.Future[int] | None = None
        self.returncode: int | None = None

    def wait_for(self, seconds: float) -> int:
        """Wait until it ends; its exit code, negative for the signal that ended it. Raises TimeoutError."""
        if self.returncode is None:
            self._told.settimeout(seconds)
            self.returncode = os.waitstatus_to_exitcode(self._hear())
            self._told.close()
        return self.returncode

    async def wait(self) -> int:
        """Wait for the end without a limit, for any number of waiters. A caller that begins to wait kills it in the
        end, or waits again.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._hear_the_end())
        return await asyncio.shield(self._ending)

    async def _hear_the_end(self) -> int:
        self._told.setblocking(False)
        told = await asyncio.get_running_loop().sock_recv(self._told, NUMBER.size)
        self._told.close()
        self.returncode = os.waitstatus_to_exitcode(NUMBER.unpack(told)[0])
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it where it stands, if it still does."""
        self.send_signal(signal.SIGKILL)

    def _hear(self) -> int:
        told = self._told.recv(NUMBER.size)
        assert told, SERVER_HAS_ENDED
        number: int = NUMBER.unpack(told)[0]
        return number


@contextmanager
def listening(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[tuple[int, Program]]:
    """Yield the port and the process of a program that prints `PORT number` when it serves. It is killed at the end."""
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    with open(reading, encoding="utf-8") as said:  # noqa: PTH123 - a descriptor
        try:
            program = Program(
                arguments, ROOT, os.environ if environment is None else environment, (null, writing, null)
            )
        finally:
            os.close(writing)
            os.close(null)
        try:
            yield int(said.readline().removeprefix("PORT ")), program
        finally:
            program.kill()
            program.wait_for(START_SECONDS)


def python() -> str:
    """Return a `python` for code that starts processes itself: the fork server starts its modules and files. The first
    caller waits for the server.
    """
    _control()
    return str(_home() / "python")


@functools.cache
def _home() -> Path:
    """Return the folder of this test run's server, for all its workers."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)[:12]
    return Path(tempfile.gettempdir()) / f"csgn-{run}-programs"


@functools.cache
def _control() -> socket.socket:
    """Return the socket of the server. The first worker starts the server, which ends with its last client."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    address = str(_home() / SOCKET)
    with fork_server.alone(_home()):
        if Path(address).exists():
            ours.connect(address)
        else:
            _begin_server(address, ours)
    ours.settimeout(START_SECONDS)
    assert ours.recv(len(GREETING)), SERVER_HAS_ENDED
    atexit.register(ours.close)
    return ours


def _begin_server(address: str, client: socket.socket) -> None:
    """Listen at the address, and leave the rest to a server that ends by itself. The client is connected before it
    begins, so that the server has a client whose end it sees, whenever that is.
    """
    here = _home() / "python"
    here.write_text(f"#!{sys.executable} -SEs\n{Path(forking_python.__file__).read_text(encoding='utf-8')}")
    here.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        client.connect(address)
        subprocess.run(
            (sys.executable, "-m", fork_server.__name__, str(listener.fileno()), str(here)),
            cwd=ROOT,
            pass_fds=(listener.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
