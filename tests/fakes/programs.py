"""The product's programs as processes of their own, begun by a server that has loaded them already (`fork_server`).

Loading is most of what a start costs: two seconds of a processor's time, where a fork takes hundredths.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.fakes import fork_server
from tests.fakes.fork_server import NUMBER

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
"""The first start waits until everything is loaded, on a busy machine."""


class Program:
    """A program that runs; what it is given and where it writes are descriptors, closed by whoever opened them."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        *,
        terminal: bool = False,
    ) -> None:
        """Begin. `arguments` are a module's name or a Python file, and what follows it on the command line. `terminal`
        says that standard input is one, which the program shall lead a session on.
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
        """The same for as many as want to know, without a limit. Whoever begins to wait kills it in the end, or waits
        again.
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
        assert told, "the server that begins programs has ended: what it loads cannot be loaded"
        number: int = NUMBER.unpack(told)[0]
        return number


@functools.cache
def _control() -> socket.socket:
    """The server's ear. It ends with this process, whose end of the socket is the only one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            (sys.executable, "-m", fork_server.__name__, str(theirs.fileno())),
            cwd=ROOT,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close() -> None:
        ours.close()
        server.wait()

    atexit.register(close)
    return ours
