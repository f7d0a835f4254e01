"""Health of the program for probes and users, without addresses, server names or secrets; checks of the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ListenerStatus(StrEnum):
    """Status of a platform's listener."""

    CONNECTING = "connecting"
    """Not connected: the connection is being made, for the first time or again."""
    CONNECTED = "connected"
    STANDBY = "standby"
    """Another process receives the messages; this one takes over if that process fails."""


class HealthStatus(StrEnum):
    """Health of the whole program."""

    READY = "ready"
    DEGRADED = "degraded"
    """Ready, but some MCP servers have errors, an audit checkpoint cannot be written, or a changed file of the operator
    cannot be used. All else works.
    """
    UNREADY = "unready"


@dataclass(frozen=True, slots=True)
class ServersHealth:
    """Number of MCP servers: all, connected, and with errors. The others are idle or disabled."""

    total: int = 0
    connected: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """Health of the program. `database` is True if the database responds. `platforms` are the statuses of this
    process's listeners, by name. `unwritable` is the reason if the database rejects writes, and `fix` the remedy; both
    are empty otherwise. `files_are_older` is True while the operator's files on disk cannot be used, and those of
    before are in use.
    """

    database: bool
    platforms: Mapping[str, ListenerStatus] = field(default_factory=dict)
    servers: ServersHealth = ServersHealth()
    unwritable: str = ""
    fix: str = ""
    checkpoints_fail: bool = False
    files_are_older: bool = False

    @property
    def condition(self) -> HealthStatus:
        """Overall status. Without servers the program is READY. A failed server only degrades it, because the bot can
        still answer.
        """
        if not self.database or self.unwritable or ListenerStatus.CONNECTING in self.platforms.values():
            return HealthStatus.UNREADY
        degraded = self.servers.errors or self.checkpoints_fail or self.files_are_older
        return HealthStatus.DEGRADED if degraded else HealthStatus.READY


class CheckStatus(StrEnum):
    """Result of one check."""

    WELL = "ok"
    DOUBTFUL = "warning"
    BROKEN = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, a sentence on it, a remedy, and the duration in seconds (None if unknown)."""

    name: str
    finding: CheckStatus
    detail: str = ""
    fix: str = ""
    seconds: float | None = None
