"""Health of the program for probes and users: without addresses, server names or secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ListenerStatus(StrEnum):
    """Status of a platform's listener."""

    CONNECTING = "connecting"
    """Not now: the connection is being made, again or for the first time."""
    CONNECTED = "connected"
    STANDBY = "standby"
    """Another process receives the messages; this one takes over if that process fails."""


class HealthStatus(StrEnum):
    """The whole in a word."""

    READY = "ready"
    DEGRADED = "degraded"
    """Ready, but some MCP servers are in trouble, or a checkpoint of the audit cannot be written: the rest works."""
    UNREADY = "unready"


@dataclass(frozen=True, slots=True)
class ServersHealth:
    """Number of MCP servers: all, connected, and with errors. The others are idle or disabled."""

    total: int = 0
    connected: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """`database`: it answers. `platforms` are those that this process receives, by name. `unwritable` says why the
    database takes no writes, and `fix` what to do; both are empty if it does.
    """

    database: bool
    platforms: Mapping[str, ListenerStatus] = field(default_factory=dict)
    servers: ServersHealth = ServersHealth()
    unwritable: str = ""
    fix: str = ""
    checkpoints_fail: bool = False

    @property
    def condition(self) -> HealthStatus:
        """The word for it. No servers at all is as good as all of them; a failed one keeps nobody from being answered,
        so it makes nothing unready.
        """
        if not self.database or self.unwritable or ListenerStatus.CONNECTING in self.platforms.values():
            return HealthStatus.UNREADY
        return HealthStatus.DEGRADED if self.servers.errors or self.checkpoints_fail else HealthStatus.READY
