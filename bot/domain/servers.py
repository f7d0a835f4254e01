"""MCP servers: as an operator or an admin defines them, as they are kept, and as people see them stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.domain.capabilities import ServerCapabilities
from bot.domain.flows import NO_FLOWS, ServerFlows
from bot.domain.pins import Pinned
from bot.domain.secrets import SecretReference

CONNECT_SECONDS, START_SECONDS, FIRST_START_SECONDS = 10.0, 30.0, 60.0
EVERYWHERE = ""
"""The workspace of a server that every workspace may use."""


class ServerStatus(StrEnum):
    """Status of a server."""

    PENDING = "pending"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    IDLE = "idle"
    """Not connected now and fit for use: the next call connects it."""
    FAILED = "failed"
    AUTH_REQUIRED = "sign-in required"
    DISCONNECTED = "disconnected"
    """Disconnected by a user or by the end of the program: stays so until asked."""
    DISABLED = "disabled"


class SyncStatus(StrEnum):
    """Status of the cached tools of a server."""

    NEVER_SYNCED = "never synced"
    SYNCING = "syncing"
    SYNCED = "synced"
    SYNC_FAILED = "sync failed"


class ServerEnablement(StrEnum):
    """Enablement of a server by an admin, in every process."""

    ON = "on"
    DISCONNECTED = "disconnected"
    DISABLED = "disabled"


class ConnectPolicy(StrEnum):
    """Servers that connect at the start; all others connect when needed."""

    EAGER = "eager"
    AUTO = "auto"
    LAZY = "lazy"


@dataclass(frozen=True, slots=True)
class TemplateLaunch:
    """One of the operator's launch templates, and what was filled into its slots, by name."""

    template: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A local process that speaks MCP on its standard streams. One with a `launch` is started by a template: all else
    is the template's as it is now, and only the launch is kept on disk.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    launch: TemplateLaunch | None = None


class HttpKind(StrEnum):
    """Protocol at an address."""

    STREAMABLE = "streamable_http"
    SSE = "sse"
    """MCP's first way over HTTP, of 2024: a stream of events beside the requests."""
    AUTO = "auto"
    """Streamable HTTP, or the first way where the server knows no better."""
    JSONRPC = "jsonrpc_http"
    """Plain JSON-RPC 2.0 and no MCP."""


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """An address. `headers` may hold secrets and are never shown."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: HttpKind = HttpKind.STREAMABLE


Transport = StdioTransport | HttpTransport


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One MCP server, ready to be connected to. Times are in seconds: to connect (None: as `connect_seconds` says), for
    what it offers to be told again, for one call without a word from the server, for one call with progress, and for
    calls of single tools by the names that the server gives them.

    `name` is its slug, which its tools' names begin with; `title` is what people call it. `workspace` is
    `platform:workspace`, or EVERYWHERE.
    """

    name: str
    transport: Transport
    trusted: bool = False
    system_instruction: str = ""
    response_instruction: str = ""
    auto_context_tool: str = ""
    connect_timeout: float | None = None
    list_timeout: float = 15.0
    tool_timeout: float = 30.0
    tool_timeout_max: float = 300.0
    tool_timeouts: Mapping[str, float] = field(default_factory=dict)
    id: str = ""
    """A server of the operator's file has `file:NAME`."""
    workspace: str = EVERYWHERE
    title: str = ""
    description: str = ""
    auto_connect: bool = True
    sign_in: OAuthTerms | None = None
    """OAuth settings of the server, if it is defined with OAuth."""
    flows: ServerFlows = NO_FLOWS

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", f"{FILE}{self.name}")

    @property
    def from_file(self) -> bool:
        """True for a server of the operator's file: chat commands cannot change it."""
        return self.id.startswith(FILE)

    def connect_seconds(self, *, known: bool) -> float:
        """Seconds allowed for connecting. A program without `known` capabilities gets longer, because it may have to
        be downloaded.
        """
        if self.connect_timeout is not None:
            return self.connect_timeout
        match self.transport:
            case HttpTransport():
                return CONNECT_SECONDS
            case StdioTransport():
                return START_SECONDS if known else FIRST_START_SECONDS

    def read_timeout(self, tool: str) -> float:
        """Seconds that a tool call waits without data from the server."""
        return self.tool_timeouts.get(tool, self.tool_timeout)

    @property
    def max_read_timeout(self) -> float:
        """The longest time, in seconds, that any call of it is waited for without a word."""
        return max((self.tool_timeout, *self.tool_timeouts.values()))


def kind_of(transport: Transport) -> str:
    """Return the transport's name for users: `stdio`, or the kind of the address."""
    match transport:
        case StdioTransport():
            return STDIO
        case HttpTransport(kind=kind):
            return kind.value


STDIO = "stdio"
FILE = "file:"


class AuthenticationKind(StrEnum):
    """Kind of authentication at an HTTP server."""

    NONE = "none"
    HEADER = "header"
    BASIC = "basic"
    API_KEY = "api_key"
    OAUTH = "oauth"
    """A person signs the bot in, in a browser."""
    CLIENT_CREDENTIALS = "client_credentials"
    """The bot signs itself in with an id and a secret of its own, by OAuth."""


_NAMES_A_HOST = frozenset(
    (
        "host", "forwarded", "x-forwarded-host", "x-forwarded-server", "x-forwarded-port", "x-forwarded-proto",
        "x-forwarded-scheme", "x-host", "x-http-host-override", "x-original-host", "x-original-url", "x-rewrite-url",
        "x-real-host", "x-backend-host", "via", "origin", "referer", "location", "alt-svc", "alt-used",
    )
)  # fmt: skip
_OF_THE_CONNECTION = frozenset(
    ("content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "mcp-session-id")
)


def is_reserved_header(name: str) -> bool:
    """Return True if a server's definition cannot have this header: it names a host, so that a proxy could send the
    request and its secrets elsewhere, it is for a proxy, or the connection sets it.
    """
    lower = name.lower()
    return lower in _NAMES_A_HOST | _OF_THE_CONNECTION or lower.startswith((":", "proxy-"))


OAUTH_KINDS = frozenset({AuthenticationKind.OAUTH, AuthenticationKind.CLIENT_CREDENTIALS})
"""Their secret is a client's: it goes to an authorization server, and never to the server itself."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """`header` is the name of the header that carries the secret: as it is, or as a bearer's for an API key whose
    header is `Authorization`. The user name of `basic` is a secret of its own (`USER_SLOT`). For the two kinds of
    OAuth: `client_id` is what the authorization server knows the bot by, if it was registered there by hand, and the
    secret is that client's; `scope` is what is asked for where the server does not say.
    """

    kind: AuthenticationKind = AuthenticationKind.NONE
    header: str = "Authorization"
    client_id: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class OAuthTerms:
    """OAuth settings by an admin; `kind` is one of its two OAuth kinds. With all else empty, the bot registers itself
    and requests the scopes that the server names.
    """

    kind: AuthenticationKind = AuthenticationKind.OAUTH
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


AUTH_SECRET = "auth"  # noqa: S105 - the name of a slot
"""The slot of the header's value, the password or the key. The others are USER_SLOT, `env:NAME` and `header:NAME`."""
USER_SLOT = "username"
"""The slot of the user name of `basic`, which is kept and shown like the password."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A server as an admin has defined it. `config` is without any secret; where each of them comes from is in
    `secrets`, by slot. `missing` are the slots of stored secrets that have no value, or none for the place that the
    server has now. `version` grows with every change (optimistic lock). Times are epoch seconds.
    """

    config: ServerConfig
    authentication: Authentication = Authentication()
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    standing: ServerEnablement = ServerEnablement.ON
    version: int = 0
    created_at: float = 0.0
    created_by: str = ""
    updated_at: float = 0.0
    updated_by: str = ""
    missing: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """A UUID."""
        return self.config.id


@dataclass(frozen=True, slots=True)
class CachedCapabilities:
    """Capabilities stored at a server's last sync. `at` is None without a sync."""

    status: SyncStatus = SyncStatus.NEVER_SYNCED
    capabilities: ServerCapabilities = ServerCapabilities()
    at: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DesiredServer:
    """One server as the toolbox is to keep it: secrets filled in, and what is already known of it. `problem` says why
    it cannot be used as it is defined. `pinned` is None as long as nobody has looked at its tools. `signed_in` is the
    version of the sign-in that is kept, 0 if there is none.
    """

    config: ServerConfig
    standing: ServerEnablement = ServerEnablement.ON
    synced: CachedCapabilities = CachedCapabilities()
    secrets: frozenset[str] = frozenset()
    problem: str = ""
    pinned: Pinned | None = None
    signed_in: int = 0


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """Current state of one server. `problem` is a sentence with cause and fix, empty without an error. `own_problem`
    is the same without text from the server.
    """

    config: ServerConfig
    status: ServerStatus
    problem: str = ""
    protocol: str = ""
    server_version: str = ""
    tool_count: int = 0
    connected_at: float | None = None
    sync: SyncStatus = SyncStatus.NEVER_SYNCED
    synced_at: float | None = None
    own_problem: str = ""
