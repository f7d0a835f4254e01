"""This process: its name as a holder of leases, its health, and the counters of its MCP sessions.

A name has the host, the process id, and the facts that identify the process on its machine until it restarts: the id of
the boot, the namespace of the process id, and the start time. Its end is random. Nothing is known of a process on
another machine, in another container or on a system without /proc: its lease expires.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic

from bot.domain.health import Health, ListenerStatus, ServersHealth
from bot.domain.metrics import CacheUsed, MetricEvent, MetricSink, ProcessCounters, SessionChanged
from bot.domain.servers import ServerSnapshot, ServerStatus
from bot.errors import DatabaseError, DatabaseUnwritable
from bot.ports import Listener
from bot.storage.address import SqliteFile, read_address

log = logging.getLogger(__name__)

DATABASE_SECONDS = 2.0
FRESH_SECONDS = 1.0
"""Shortest time in seconds between two database checks."""
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)
_OFF = (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
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


# -------------------- health


class HealthCheck:
    """Health check of the process. `check_writable` writes a small row to the database, `servers` returns the state of
    the MCP servers, `watch` adds listeners.
    """

    def __init__(
        self,
        check_writable: Callable[[], Awaitable[object]],
        servers: Callable[[], Iterable[ServerSnapshot]],
        *,
        needs_servers: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._check_writable = check_writable
        self._servers = servers
        self._needs_servers = needs_servers
        self._clock = clock
        self._listeners: dict[str, Listener] = {}
        self.checkpoints_fail: Callable[[], bool] = lambda: False
        """Returns True while checkpoints of the audit cannot be written."""
        self.files_are_older: Callable[[], bool] = lambda: False
        """Returns True while the operator's files in use are older than those on disk."""
        self._checking = asyncio.Lock()
        self._database = Health(database=False)
        self._checked_at = -FRESH_SECONDS

    def watch(self, platform: str, listener: Listener) -> None:
        """Include a platform's listener."""
        self._listeners[platform] = listener

    async def check(self) -> Health:
        """Return the current health within a few seconds. Never raises."""
        platforms: dict[str, ListenerStatus] = {
            name: await listener.listening() for name, listener in self._listeners.items()
        }
        statuses = [state.status for state in self._servers()]
        enabled = [status for status in statuses if status not in _OFF]
        errors = sum(status in _IN_TROUBLE for status in statuses)
        return replace(
            await self._database_health(),
            platforms=platforms,
            servers=ServersHealth(len(statuses), statuses.count(ServerStatus.CONNECTED), errors),
            checkpoints_fail=self.checkpoints_fail(),
            files_are_older=self.files_are_older(),
            lacks_servers=self._needs_servers and bool(enabled) and all(status in _IN_TROUBLE for status in enabled),
        )

    async def _database_health(self) -> Health:
        async with self._checking:
            if self._clock() - self._checked_at >= FRESH_SECONDS:
                self._database = await self._check_database()
                self._checked_at = self._clock()
            return self._database

    async def _check_database(self) -> Health:
        try:
            async with asyncio.timeout(DATABASE_SECONDS):
                await self._check_writable()
        except DatabaseUnwritable as error:
            return Health(database=True, unwritable=error.reason, fix=error.fix)
        except (DatabaseError, TimeoutError) as error:
            log.debug("database check failed: %s", error or "no answer")
            return Health(database=False)
        return Health(database=True)


class SessionCounters:
    """Counters of MCP sessions in this process, for `/mcp stats`. Every event is passed on to `observe`."""

    def __init__(self, observe: MetricSink) -> None:
        self._observe = observe
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._cache: Counter[tuple[str, str]] = Counter()

    def observe(self, measurement: MetricEvent) -> None:
        """Count an event of a server; pass every event on."""
        match measurement:
            case SessionChanged(server, event):
                self._sessions[server, event] += 1
            case CacheUsed(server, event):
                self._cache[server, event] += 1
            case _:
                pass
        self._observe(measurement)

    def counters_of(self, servers: Collection[str]) -> ProcessCounters:
        """Return the counters of these servers, given by slug."""
        return ProcessCounters(_sum_by_event(self._sessions, servers), _sum_by_event(self._cache, servers))


def _sum_by_event(counts: Counter[tuple[str, str]], servers: Collection[str]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for (server, event), count in counts.items():
        if server in servers:
            totals[event] += count
    return totals
