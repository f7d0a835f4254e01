"""Programs of the product that begin without being loaded again: `python -m tests.fakes.fork_server CONTROL`.

It has loaded everything once and forks for every start. The new process has its own arguments, folder, environment and
streams, runs the program's own main module as `__main__`, and ends as any interpreter does. `programs` asks it to.

A start is one packet on the socket CONTROL: a JSON object, and four descriptors, which are standard input, output and
errors, and a socket on which the process id and later the status (as `os.waitpid` gives it) are told. It ends when
nobody is left to ask.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOADED = (
    "bot.cli",
    "bot.app.administration",
    "bot.app.chat",
    "bot.app.stores",
    "bot.llm.demo",
    "bot.llm.openai_chat",
    "bot.storage.opening",
    "bot.storage.schema",
    "bot.storage.turn_log",
    "bot.tools.toolbox",
)
NUMBER = struct.Struct("!i")
LONGEST = 1 << 18
"""Bytes of one packet."""
STREAMS = 3


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for every start that is asked for. Returns in each new process, with what it was asked to be; in the server
    itself never.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, LONGEST, STREAMS + 1)
        if not packet:
            sys.exit(0)
        if os.fork() == 0:
            control.close()
            return _begun(json.loads(packet), descriptors)
        for each in descriptors:
            os.close(each)


def _begun(asked: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    """Fork once more, and wait for the program. Returns in the program only."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=descriptors[STREAMS]) as told:
        pid = os.fork()
        if pid == 0:
            told.close()
            _take(descriptors[:STREAMS], terminal=asked["terminal"])
            return asked
        for each in descriptors[:STREAMS]:
            os.close(each)
        told.sendall(NUMBER.pack(pid))
        _, status = os.waitpid(pid, 0)
        told.sendall(NUMBER.pack(status))
    os._exit(0)


def _take(descriptors: Sequence[int], *, terminal: bool) -> None:
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


def become(what: dict[str, Any]) -> None:
    """Be the program: a module by its name, or a file."""
    os.chdir(what["folder"])
    os.environ.clear()
    os.environ.update(what["environment"])
    program, *_ = sys.argv = list(what["arguments"])
    sys.path[0] = what["folder"]  # where `python -m` looks first
    if Path(program).suffix == ".py":
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # what is loaded stays: no collection has to look at it, in no process
    become(serve(socket.socket(fileno=int(sys.argv[1]))))
