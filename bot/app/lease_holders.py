"""Names of processes as holders of leases, and whether such a process has ended.

A name has the host, the process id, and the facts that identify the process on its machine until it restarts: the id of
the boot, the namespace of the process id, and the start time. Its end is random. Nothing is known of a process on
another machine, in another container or on a system without /proc: its lease expires.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from bot.storage.address import SqliteFile, read_address

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
_START = 19
"""Position of the start time in /proc/PID/stat, counted after the command's name."""
_DEAD = ("Z", "X")
"""States of a process that has ended and is not yet collected by its parent."""


def name_of_this_process() -> str:
    """Return the name of this process."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_machine()}:{_start(pid)}:{secrets.token_hex(4)}"


def end_check(database_url: str) -> Callable[[str], bool]:
    """Return a function that returns True for the name of another process that has certainly ended. On SQLite that is
    every other process, because one alone receives messages.
    """
    if isinstance(read_address(database_url), SqliteFile):
        return lambda _name: True
    return has_ended


def has_ended(name: str) -> bool:
    """Return True if the process ran here and has ended. Return False if it runs, or if that cannot be known."""
    match name.rsplit(":", 5):
        case [_, pid, boot_id, namespace, start, _] if pid.isdigit() and f"{boot_id}:{namespace}" == _machine():
            return _start(int(pid)) != start
        case _:
            return False


def _machine() -> str:
    """Return the id of the boot and the namespace of process ids. Without /proc, return a random text."""
    try:
        boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
        namespace = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return secrets.token_hex(8)
    return f"{boot_id}:{namespace.strip('pid:[]')}"


def _start(pid: int) -> str:
    """Return the start time of a process, empty if it does not run."""
    try:
        # The command's name, in parentheses, may have blanks and parentheses.
        state, *fields = (
            (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except (OSError, ValueError):
        return ""
    return "" if state in _DEAD or len(fields) < _START else fields[_START - 1]
