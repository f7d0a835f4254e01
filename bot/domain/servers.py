"""MCP servers: configuration, stored definitions, capabilities, and status."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from bot.domain.flows import NO_FLOWS, ServerFlows
from bot.domain.pins import Pinned
from bot.domain.secrets import SecretReference
from bot.domain.tools import Tool
from bot.i18n import gettext_lazy

MOST_RESOURCES = 10_000
"""Maximum number of resources of a server that are listed."""
_EXPRESSION = re.compile(r"\{[+#./;?&]?([^{}]+)\}")
_MODIFIER = re.compile(r"\*$|:[0-9]+$")
EVERYWHERE = ""
"""Workspace of a server that all workspaces share."""
STDIO = "stdio"
FILE = "file:"
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
AUTH_SECRET = "auth"  # noqa: S105 - the name of a slot
"""Slot of the header's value, the password or the key. Other slots are USER_SLOT, `env:NAME` and `header:NAME`."""
USER_SLOT = "username"
"""Slot of the user name of `basic`, which is treated like the password."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Resource of a server. `size` is in bytes, None if the server does not say."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceTemplate:
    """Resources under one URI template (RFC 6570)."""

    pattern: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""

    @property
    def uri(self) -> str:
        """The pattern, where an address is shown."""
        return self.pattern

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the placeholders, in order."""
        names = (name for expression in _EXPRESSION.findall(self.pattern) for name in expression.split(","))
        return tuple(dict.fromkeys(_MODIFIER.sub("", name.strip()) for name in names))


@dataclass(frozen=True, slots=True)
class PromptArgument:
    """Argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """Prompt of a server, a text for users to ask with."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class Handshake:
    """Record of a server that needs a handshake, as all did before 2026: its transport, and its place
    (`bot.mcp.config.checks`). `found_at` is in epoch seconds.
    """

    transport: str
    place: str
    found_at: float


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """Everything one server offers, with its protocol version. `instructions` (`ToolKind.INSTRUCTIONS`) is None if the
    server has none, or if they are not to be used. `left_out` are listed tools that cannot be offered, with the reason.
    `definition` is the digest of the server's definition at the time of the listing; empty if it is not known.
    """

    tools: tuple[Tool, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    server_version: str = ""
    protocol: str = ""
    handshake: Handshake | None = None
    instructions: Tool | None = None
    left_out: tuple[str, ...] = ()
    definition: str = ""

    @property
    def definitions(self) -> tuple[Tool, ...]:
        """The definitions that are pinned and reviewed: the tools and the instructions."""
        return self.tools if self.instructions is None else (*self.tools, self.instructions)


@dataclass(frozen=True, slots=True)
class CompletionTarget:
    """An argument of a prompt, or of a resource template by its pattern (`is_template`), with the begun value."""

    name: str
    argument: str
    value: str = ""
    is_template: bool = False


@dataclass(frozen=True, slots=True)
class TextContents:
    """Text from a server, of a resource or a prompt. `heading` is its address or role."""

    heading: str
    text: str
    mime_type: str = ""


@dataclass(frozen=True, slots=True)
class BlobContents:
    """Binary data from a server. `size` is in bytes."""

    heading: str
    mime_type: str
    size: int


Piece = TextContents | BlobContents


def find_resources(entries: Sequence[Resource | ResourceTemplate], query: str) -> Sequence[Resource | ResourceTemplate]:
    """Return the entries that hold words of the query, those with the most words first; all without a query."""
    words = tuple(dict.fromkeys(query.casefold().split()))
    if not words:
        return entries
    texts = (f"{entry.uri}\n{entry.name}\n{entry.title}\n{entry.description}".casefold() for entry in entries)
    counts = [sum(word in text for word in words) for text in texts]
    ranked = sorted(zip(counts, entries, strict=True), key=lambda pair: -pair[0])
    return [entry for count, entry in ranked if count]


CONNECT_SECONDS, START_SECONDS, FIRST_START_SECONDS = 10.0, 30.0, 60.0


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

    @property
    def label(self) -> str:
        """The status in the current language."""
        return str(STATUS_LABELS[self])


class SyncStatus(StrEnum):
    """Status of the cached tools of a server."""

    NEVER_SYNCED = "never synced"
    SYNCING = "syncing"
    SYNCED = "synced"
    SYNC_FAILED = "sync failed"

    @property
    def label(self) -> str:
        """The status in the current language."""
        return str(SYNC_LABELS[self])


STATUS_LABELS: Mapping[str, str] = {
    ServerStatus.PENDING: gettext_lazy("pending"),
    ServerStatus.CONNECTING: gettext_lazy("connecting"),
    ServerStatus.CONNECTED: gettext_lazy("connected"),
    ServerStatus.IDLE: gettext_lazy("idle"),
    ServerStatus.FAILED: gettext_lazy("failed"),
    ServerStatus.AUTH_REQUIRED: gettext_lazy("sign-in required"),
    ServerStatus.DISCONNECTED: gettext_lazy("disconnected"),
    ServerStatus.DISABLED: gettext_lazy("disabled"),
}
SYNC_LABELS: Mapping[str, str] = {
    SyncStatus.NEVER_SYNCED: gettext_lazy("never synced"),
    SyncStatus.SYNCING: gettext_lazy("syncing"),
    SyncStatus.SYNCED: gettext_lazy("synced"),
    SyncStatus.SYNC_FAILED: gettext_lazy("sync failed"),
}


class ServerEnablement(StrEnum):
    """Enablement of a server by an admin, in every process."""

    ON = "on"
    DISCONNECTED = "disconnected"
    DISABLED = "disabled"


class SessionScope(StrEnum):
    """Sharing of a server's sessions, with the server's state in them: one session for all, or one for each
    conversation or user.
    """

    SHARED = "shared"
    CONVERSATION = "conversation"
    PERSON = "person"


class ToolNaming(StrEnum):
    """Names that a model knows the tools of a server by: `server__tool`, or the server's own."""

    PREFIXED = "prefixed"
    PLAIN = "plain"


class ConnectPolicy(StrEnum):
    """Servers that connect at the start; all others connect when needed."""

    EAGER = "eager"
    AUTO = "auto"
    LAZY = "lazy"


@dataclass(frozen=True, slots=True)
class TemplateLaunch:
    """Launch template of the operator by name, and the values of its slots by name."""

    template: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """Local process that speaks MCP on its standard streams. With a `launch`, all other fields come from the current
    template, and only the launch is stored.
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
    """MCP's first HTTP transport, of 2024: a stream of events beside the requests."""
    AUTO = "auto"
    """Streamable HTTP, or SSE if the server does not support it."""
    JSONRPC = "jsonrpc_http"
    """Plain JSON-RPC 2.0 without MCP."""


class Protocol(StrEnum):
    """Version of MCP that a server is spoken to in."""

    AUTO = "auto"
    """The newest that the server supports."""
    V2024_11_05 = "2024-11-05"
    V2025_03_26 = "2025-03-26"
    V2025_06_18 = "2025-06-18"
    V2025_11_25 = "2025-11-25"
    V2026_07_28 = "2026-07-28"

    @property
    def begins_with_handshake(self) -> bool:
        """True for a version of the older era, in which a server asks the user by a request of its own during a call.
        The newer one has neither handshake nor requests of the server.
        """
        return self not in (Protocol.AUTO, Protocol.V2026_07_28)


LAST_HANDSHAKE_VERSION = Protocol.V2025_11_25


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """HTTP address of a server. `headers` may hold secrets and are never shown."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: HttpKind = HttpKind.STREAMABLE


Transport = StdioTransport | HttpTransport


def is_address(url: str) -> bool:
    """Return True if this is a usable http or https address."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and url.isprintable() and not any(char.isspace() for char in url)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Configuration of one MCP server. Timeouts are in seconds: to connect (None: as `connect_seconds`), to list all
    capabilities, for one call without data from the server, for one call in total with progress, and for calls of
    single tools by the server's own tool names.

    `sessions` is their sharing. If not all do, `max_sessions` is the limit of open ones in a process, and
    `session_idle_timeout` the seconds after which an unused one ends; None is the usual time.

    `connect_retries` are further attempts within the time to connect. `reconnect` is None if the setting of all servers
    applies. `output_limit` is the length of a result's text in characters. Of the servers of one `fallback_group` the
    first by `fallback_order` that is up offers a tool that several have.

    `name` is its slug, the prefix of its tools' names. `title` is its name for users. `workspace` is
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
    preview: Mapping[str, str] = field(default_factory=dict)
    """Tools that show on a card what a call is about, by the called tool; `*` is for all others."""
    id: str = ""
    """Id of the server; `file:NAME` for a server of the operator's file."""
    workspace: str = EVERYWHERE
    title: str = ""
    description: str = ""
    auto_connect: bool = True
    sign_in: OAuthTerms | None = None
    """OAuth settings of the server, if it is defined with OAuth."""
    flows: ServerFlows = NO_FLOWS
    sessions: SessionScope = SessionScope.SHARED
    max_sessions: int = 10
    session_idle_timeout: float | None = None
    protocol: Protocol = Protocol.AUTO
    roots: tuple[str, ...] = ()
    """Absolute paths of the folders that a local server may list (MCP roots)."""
    reconnect: bool | None = None
    connect_retries: int = 0
    output_limit: int = 50_000
    fallback_group: str = ""
    fallback_order: int = 1
    tool_names: ToolNaming = ToolNaming.PREFIXED
    use_instructions: bool = False
    """True if the model gets the server's own `instructions`, after a review."""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", f"{FILE}{self.name}")

    @property
    def from_file(self) -> bool:
        """True for a server of the operator's file: chat commands cannot change it."""
        return self.id.startswith(FILE)

    @property
    def launch(self) -> TemplateLaunch | None:
        """The launch of a server that a template starts, None for others."""
        return self.transport.launch if isinstance(self.transport, StdioTransport) else None

    def connect_seconds(self, *, known: bool) -> float:
        """Return the seconds allowed for connecting. A program without `known` capabilities gets longer, because it may
        have to be downloaded.
        """
        if self.connect_timeout is not None:
            return self.connect_timeout
        match self.transport:
            case HttpTransport():
                return CONNECT_SECONDS
            case StdioTransport():
                return START_SECONDS if known else FIRST_START_SECONDS

    def read_timeout(self, tool: str) -> float:
        """Return the seconds that a tool call waits without data from the server."""
        return self.tool_timeouts.get(tool, self.tool_timeout)

    @property
    def max_read_timeout(self) -> float:
        """Longest time, in seconds, that any call waits without data from the server."""
        return max((self.tool_timeout, *self.tool_timeouts.values()))


def kind_of(transport: Transport) -> str:
    """Return the transport's name for users: `stdio`, or the kind of the address."""
    match transport:
        case StdioTransport():
            return STDIO
        case HttpTransport(kind=kind):
            return kind.value


class AuthenticationKind(StrEnum):
    """Kind of authentication at an HTTP server."""

    NONE = "none"
    HEADER = "header"
    BASIC = "basic"
    API_KEY = "api_key"
    OAUTH = "oauth"
    """A user signs the bot in with a browser, by OAuth."""
    CLIENT_CREDENTIALS = "client_credentials"
    """The bot signs itself in by OAuth, with its own client id and secret."""


def is_reserved_header(name: str) -> bool:
    """Return True if a server's definition cannot have this header. It names a host, so that a proxy could redirect the
    request and its secrets; or it is for a proxy; or the connection sets it.
    """
    lower = name.lower()
    return lower in _NAMES_A_HOST | _OF_THE_CONNECTION or lower.startswith((":", "proxy-"))


OAUTH_KINDS = frozenset({AuthenticationKind.OAUTH, AuthenticationKind.CLIENT_CREDENTIALS})
"""OAuth kinds. Their secret is an OAuth client's: it goes to the authorization server only."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """Authentication at an HTTP server. `header` is the name of the header for the secret: the value is the secret
    itself, or a bearer token for an API key in `Authorization`. The user name of `basic` is a separate secret
    (USER_SLOT). For OAuth, `client_id` is the id of a client that was registered by hand, and the secret is that
    client's. `scope` is requested if the server names none. `issuer` is the authorization server if it calls itself
    otherwise than the server does.
    """

    kind: AuthenticationKind = AuthenticationKind.NONE
    header: str = "Authorization"
    client_id: str = ""
    scope: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class OAuthTerms:
    """OAuth settings by an admin. `kind` is one of OAUTH_KINDS. If all other fields are empty, the bot registers itself
    and requests the scopes that the server names.
    """

    kind: AuthenticationKind = AuthenticationKind.OAUTH
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """Definition of a server by an admin. `config` holds no secret; `secrets` are the references by slot. `missing` are
    slots of stored secrets without a value for the server's current place. `version` grows with every change
    (optimistic lock). Times are epoch seconds.
    """

    config: ServerConfig
    authentication: Authentication = Authentication()
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    enablement: ServerEnablement = ServerEnablement.ON
    version: int = 0
    created_at: float = 0.0
    created_by: str = ""
    updated_at: float = 0.0
    updated_by: str = ""
    missing: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """Id of the server, a UUID."""
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
    """Server that the toolbox has to run, with secrets filled in and cached capabilities. `problem` is the reason if
    the definition cannot be used. `pinned` is None before the first sync. `signed_in` is the version of the stored
    sign-in, 0 without one.
    """

    config: ServerConfig
    enablement: ServerEnablement = ServerEnablement.ON
    synced: CachedCapabilities = CachedCapabilities()
    secrets: frozenset[str] = frozenset()
    problem: str = ""
    pinned: Pinned | None = None
    signed_in: int = 0


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """One session of a conversation or user. Its user or channel is left out, because a private channel's name is not
    for everyone. Times are in epoch seconds; `idle_since` is None while a call runs.
    """

    started_at: float
    idle_since: float | None


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """Current state of one server. `problem` is a sentence with cause and fix, empty without an error. `own_problem`
    is the same without text from the server. `is_retrying` is True if the next attempt to connect is planned, within
    the limit of attempts. `left_out` are listed tools that cannot be offered, with the reason. `sessions` are those of
    conversations or users in this process, oldest first.
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
    is_retrying: bool = False
    left_out: tuple[str, ...] = ()
    sessions: tuple[SessionSnapshot, ...] = ()
    last_used_at: float | None = None
