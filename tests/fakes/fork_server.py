"""Fork server for the product's programs: `python -m tests.fakes.fork_server DESCRIPTOR PYTHON`.

It loads all modules once and forks for every start. The new process has its own arguments, folder, environment and
streams, runs the program's own main module as `__main__`, and ends as any interpreter does. `programs` starts the
server and sends it requests. So does `forking_python`, which is PYTHON: children that a program starts with `python`
are forked here, too.

DESCRIPTOR is the socket on which the server listens. It greets each client once all modules are loaded. A request to
start a program is one packet: a JSON object and four descriptors. Three of them are standard input, output and errors.
On the fourth, a socket, the server sends the process id and later the status of `os.waitpid`. If the client closes that
socket, the program is killed. When the last client has gone, the server kills the programs that are left, removes its
folder and ends. If the server itself is killed, its programs are, too.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import bot

PROGRAMS = "__main__"
"""The name of modules that are begun, not loaded."""
MIGRATIONS = "bot.storage.migrations"
BESIDE = (
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "anyio._core._subprocesses",
    "discord",
    "encodings.utf_8_sig",
    "httpcore2",
    "mako.exceptions",
    "mcp.server.sse",
    "mcp_servers.knowledge.server",
    "mcp_servers.notes.server",
    "mcp_servers.weather.server",
    "openai",
    "prompt_toolkit.input.vt100",
    "prompt_toolkit.patch_stdout",
    "psycopg",
    "pygments.lexers.html",
    "rich.logging",
    "tests.fakes.parts",
    "truststore",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "xml.dom.minidom",
)
"""Modules that the programs load beside the bot's own."""
GREETING = b"!"
PR_SET_PDEATHSIG = 1
NUMBER = struct.Struct("!i")
LONGEST = 1 << 18
"""Bytes of one packet."""
STREAMS = 3
WITHOUT_NAMES = "TESTS_WITHOUT_NAMES"
"""A variable for programs that resolve no host but this machine, on any network."""
SHORTER_WAITS = "TESTS_SHORTER_WAITS"
"""A variable with seconds for constants of a program, as JSON, such as `{"bot.engine.faults.POLL_SECONDS": 0.2}`."""
_resolve = socket.getaddrinfo


def modules_to_load() -> Iterator[str]:
    """Return the modules to load before the first start, with those that the bot loads only on use."""
    for module in pkgutil.walk_packages(bot.__path__, f"{bot.__name__}."):
        if not module.name.endswith(PROGRAMS) and not module.name.startswith(MIGRATIONS):
            yield module.name
    yield from BESIDE


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder: one process at a time makes, fills or removes it."""
    with lock_folder(folder, fcntl.LOCK_EX):
        yield


def lock_folder(folder: Path, kind: int) -> IO[str]:
    """Return the open lock of the folder, which is made if it is missing. `kind` is `fcntl.LOCK_EX` or `LOCK_SH`."""
    while True:
        folder.mkdir(exist_ok=True)
        with suppress(FileNotFoundError), ExitStack() as stack:
            lock = stack.enter_context((folder / "lock").open("a"))
            fcntl.flock(lock, kind)
            if os.fstat(lock.fileno()).st_nlink:  # the folder was not taken away meanwhile
                stack.pop_all()
                return lock


class Server:
    """Server that forks for each requested start and reports its exit status."""

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener = listener
        self._folder = folder
        self._ready = selectors.DefaultSelector()
        self._clients = 0
        self._watch(listener, self._somebody_comes)

    def serve(self) -> dict[str, Any]:
        """Return in each new process, with its request. Never return in the server itself."""
        while True:
            for key, _ in self._ready.select():
                still = key in self._ready.get_map().values()  # and not done with by another of this round
                if still and (asked := key.data()) is not None:
                    return cast("dict[str, Any]", asked)
            if not self._clients:
                self._end()

    def _watch(self, what: socket.socket | int, then: Callable[[], dict[str, Any] | None]) -> None:
        self._ready.register(what, selectors.EVENT_READ, then)

    def _somebody_comes(self) -> None:
        asking, _ = self._listener.accept()
        with suppress(ConnectionError):
            asking.sendall(GREETING)
        self._clients += 1
        self._watch(asking, lambda: self._accept_request(asking))

    def _accept_request(self, asking: socket.socket) -> dict[str, Any] | None:
        packet, descriptors = b"", list[int]()
        with suppress(ConnectionError):  # gone without a look at the greeting
            packet, descriptors, *_ = socket.recv_fds(asking, LONGEST, STREAMS + 1)
        if not packet:
            self._ready.unregister(asking)
            asking.close()
            self._clients -= 1
            return None
        asked: dict[str, Any] = json.loads(packet)
        pid = os.fork()
        if pid == 0:
            for each in (*(key.fd for key in self._ready.get_map().values()), descriptors[STREAMS]):
                os.close(each)
            self._ready.close()
            end_with_parent()
            _take(descriptors[:STREAMS], terminal=asked["terminal"])
            return asked
        for descriptor in descriptors[:STREAMS]:
            os.close(descriptor)
        self._begun(pid, socket.socket(fileno=descriptors[STREAMS]))
        return None

    def _begun(self, pid: int, told: socket.socket) -> None:
        process = os.pidfd_open(pid)

        def nobody_wants_to_know() -> None:
            self._ready.unregister(told)
            told.close()
            os.kill(pid, signal.SIGKILL)

        def report_end() -> None:
            self._ready.unregister(process)
            os.close(process)
            _, status = os.waitpid(pid, 0)
            if told.fileno() >= 0:
                self._ready.unregister(told)
                with suppress(ConnectionError), told:
                    told.sendall(NUMBER.pack(status))

        self._watch(told, nobody_wants_to_know)
        self._watch(process, report_end)
        with suppress(ConnectionError):
            told.sendall(NUMBER.pack(pid))

    def _end(self) -> None:
        """End if no client has come meanwhile. The programs that are left end with this process."""
        with alone(self._folder):
            if not any(key.fileobj is self._listener for key, _ in self._ready.select(0)):
                shutil.rmtree(self._folder)
                os._exit(0)


def end_with_parent() -> None:
    """Have this process killed when the thread that began it ends, where the kernel offers that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _take(descriptors: Sequence[int], *, terminal: bool) -> None:
    # Tests that run in the background of a shell ignore SIGINT; a program at a terminal does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if terminal:
        os.setsid()
    for number, each in enumerate(descriptors):
        os.dup2(each, number)
        os.close(each)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        number = ("stdin", "stdout", "stderr").index(name)
        errors = "backslashreplace" if name == "stderr" else "strict"
        lines = 1 if os.isatty(number) or name == "stderr" else -1
        stream = open(number, mode, lines, "utf-8", errors, closefd=False)  # noqa: SIM115 - as long as the process
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def become(what: dict[str, Any], python: str) -> None:
    """Be the program: a module by its name, or a file."""
    os.chdir(what["folder"])
    os.environ.clear()
    os.environ.update(what["environment"])
    if WITHOUT_NAMES in os.environ:
        socket.getaddrinfo = _of_this_machine  # type: ignore[assignment]
    for name, seconds in json.loads(os.environ.get(SHORTER_WAITS, "{}")).items():
        module, _, constant = name.rpartition(".")
        assert getattr(importlib.import_module(module), constant) > seconds, name
        setattr(importlib.import_module(module), constant, seconds)
    sys.executable = python
    program, *_ = sys.argv = list(what["arguments"])
    sys.path[0] = what["folder"]  # where `python -m` looks first
    if Path(program).suffix == ".py":
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def _of_this_machine(host: str, *more: Any, **others: Any) -> list[tuple[Any, ...]]:
    if host not in ("localhost", "127.0.0.1", None):
        raise socket.gaierror(socket.EAI_NONAME, "no network in the tests")
    return list(_resolve(host, *more, **others))


def end(code: int) -> None:
    """End like the interpreter, without the deletion of modules, which costs more than most programs do."""
    threading._shutdown()  # type: ignore[attr-defined]
    gc.collect()  # unclosed resources of the program emit their warnings
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter has its own words for that
    os._exit(code)


def main() -> None:
    """Serve, and be each of the programs."""
    _, listens, here = sys.argv
    if os.fork():
        os._exit(0)
    for name in modules_to_load():
        importlib.import_module(name)
    gc.freeze()  # loaded objects stay: collections in all processes skip them
    asked = Server(socket.socket(fileno=int(listens)), Path(here).parent).serve()
    try:
        become(asked, here)
    except SystemExit as said:
        if not isinstance(said.code, int | None):
            raise
        code = said.code or 0
    else:
        code = 0
    end(code)


if __name__ == "__main__":
    main()
