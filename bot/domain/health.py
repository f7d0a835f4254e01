"""Health of the program for probes and users, and faults reported to operators.

Health names no address, server or secret.
"""

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
    lacks_servers: bool = False
    """True while every enabled MCP server has errors, if the program is to be ready with servers only."""

    @property
    def condition(self) -> HealthStatus:
        """Overall status. Without servers the program is READY. A failed server only degrades it, because the bot can
        still answer.
        """
        if (
            not self.database
            or self.unwritable
            or self.lacks_servers
            or ListenerStatus.CONNECTING in self.platforms.values()
        ):
            return HealthStatus.UNREADY
        degraded = self.servers.errors or self.checkpoints_fail or self.files_are_older
        return HealthStatus.DEGRADED if degraded else HealthStatus.READY


class FaultKind(StrEnum):
    """Kind of a fault."""

    SERVER_FAILED = "server_failed"
    SIGN_IN = "sign_in"
    REVIEW = "review"
    CONFIGURATION = "configuration"
    """An entry of the operator's files is ignored."""
    MODEL = "model"
    PLATFORM = "platform"
    AUDIT = "audit"
    USAGE_LIMIT = "usage_limit"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `key` identifies it in all processes. `title` names the fault, `over` is the title once it is over.
    `command` is typed in a chat or a shell to see more, `guide` is the page of the manual. No text is a vendor's or a
    server's, and none contains a secret.
    """

    key: str
    kind: FaultKind
    title: str
    over: str
    cause: str = ""
    fix: str = ""
    command: str = ""
    guide: str = ""


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A stored fault and the message about it. Times are epoch seconds; `closed_at` is None while it lasts.

    `message` numbers the messages about this fault. `occurrences` are those that this message is about, since
    `first_at`. `ref` is the message's reference, empty before the first successful post; `is_attempted` is True if a
    post was begun. `revision` grows with every change.
    """

    fault: Fault
    opened_at: float
    closed_at: float | None = None
    first_at: float = 0.0
    occurrences: int = 1
    message: int = 1
    ref: str = ""
    is_attempted: bool = False
    revision: int = 1
