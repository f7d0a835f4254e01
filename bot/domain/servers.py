"""MCP servers: as an operator or an admin defines them, as they are kept, and as people see them stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.domain.capabilities import ServerCapabilities
from bot.domain.secrets import SecretReference

EVERYWHERE = ""
"""The workspace of a server that every workspace may use."""


class ServerStatus(StrEnum):
    """How a server stands (checklist E, C11)."""

    PENDING = "pending"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    IDLE = "idle"
    """Not connected now and fit for use: the next call connects it."""
    FAILED = "failed"
    AUTH_REQUIRED = "sign-in required"
    DISCONNECTED = "disconnected"
    """Somebody has disconnected it, or the program is ending: it stays so until asked."""
    DISABLED = "disabled"


class SyncStatus(StrEnum):
    """How what we know of a server's tools stands (checklist 88)."""

    NEVER_SYNCED = "never synced"
    SYNCING = "syncing"
    SYNCED = "synced"
    SYNC_FAILED = "sync failed"


class Standing(StrEnum):
    """What an admin wants of a server, in every process."""

    ON = "on"
    DISCONNECTED = "disconnected"
    DISABLED = "disabled"


class ConnectPolicy(StrEnum):
    """Which servers connect at the start (C9); all others do when somebody needs them."""

    EAGER = "eager"
    AUTO = "auto"
    LAZY = "lazy"


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A local process that speaks MCP on its standard streams."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """A streamable HTTP endpoint. `headers` may hold secrets and are never shown."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


Transport = StdioTransport | HttpTransport


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One MCP server, ready to be connected to. Times are in seconds.

    `name` is its slug, which its tools' names begin with; `title` is what people call it. `workspace` is
    `platform:workspace`, or EVERYWHERE.
    """

    name: str
    transport: Transport
    trusted: bool = False
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""
    connect_timeout: float = 30.0
    tool_timeout: float = 30.0
    id: str = ""
    """A server of the operator's file has `file:NAME`."""
    workspace: str = EVERYWHERE
    title: str = ""
    description: str = ""
    auto_connect: bool = True

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", f"{FILE}{self.name}")

    @property
    def from_file(self) -> bool:
        """It is the operator's: nobody changes it in chat."""
        return self.id.startswith(FILE)


FILE = "file:"


class AuthenticationKind(StrEnum):
    """How the bot shows who it is to an HTTP server (checklist C)."""

    NONE = "none"
    HEADER = "header"
    BASIC = "basic"
    API_KEY = "api_key"


@dataclass(frozen=True, slots=True)
class Authentication:
    """`header` is the name of the header that carries the secret: as it is, or as a bearer's for an API key whose
    header is `Authorization`. `username` is for `basic`.
    """

    kind: AuthenticationKind = AuthenticationKind.NONE
    header: str = "Authorization"
    username: str = ""


AUTH_SECRET = "auth"  # noqa: S105 - the name of a slot
"""The slot of the header's value, the password or the key. The others are `env:NAME` and `header:NAME`."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server as an admin has defined it. `config` is without any secret; where each of them comes from is in
    `secrets`, by slot. `version` grows with every change (optimistic lock). Times are epoch seconds.
    """

    config: ServerConfig
    authentication: Authentication = Authentication()
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    standing: Standing = Standing.ON
    version: int = 0
    created_at: float = 0.0
    created_by: str = ""
    updated_at: float = 0.0
    updated_by: str = ""

    @property
    def id(self) -> str:
        """A UUID."""
        return self.config.id


@dataclass(frozen=True, slots=True)
class Synced:
    """What was stored of a server at its last sync. `at` is None if there was none."""

    status: SyncStatus = SyncStatus.NEVER_SYNCED
    capabilities: ServerCapabilities = ServerCapabilities()
    at: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One server as the toolbox is to keep it: secrets filled in, and what is already known of it. `problem` says why
    it cannot be used as it is defined.
    """

    config: ServerConfig
    standing: Standing = Standing.ON
    synced: Synced = Synced()
    secrets: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server stands now. `problem` is a sentence with cause and fix, empty while all is well."""

    config: ServerConfig
    status: ServerStatus
    problem: str = ""
    protocol: str = ""
    server_version: str = ""
    tool_count: int = 0
    connected_at: float | None = None
    sync: SyncStatus = SyncStatus.NEVER_SYNCED
    synced_at: float | None = None
