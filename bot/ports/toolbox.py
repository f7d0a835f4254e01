"""Tools of MCP servers, and the administration of these servers: connections, checks, sign-ins by OAuth."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bot.domain.conversations import Author, ConversationKey
from bot.domain.elicitations import ElicitationResults, ElicitCallback, cancel_without_user
from bot.domain.messages import ToolCall
from bot.domain.pins import ReviewPolicy
from bot.domain.secrets import SecretSpan
from bot.domain.servers import EVERYWHERE, CompletionTarget, DesiredServer, Piece, ServerCapabilities, ServerSnapshot
from bot.domain.sign_ins import PendingSignIn, SignIn, SignInKey
from bot.domain.tools import ArgumentError, Tool, ToolOutcome, ToolSet
from bot.examination import Check


@dataclass(frozen=True, slots=True)
class CallContext:
    """Context of a tool call. `key` is stable over repeats of the same call; `deadline` is seconds from now.
    `conversation` is that of the turn: with the author it chooses the session of a server that has several.
    `replies` answer earlier elicitations; `elicit` asks the user during the call, for servers of the protocol before
    2026, and pauses the deadline meanwhile.
    """

    author: Author
    key: str
    deadline: float | None = None
    on_progress: Callable[[str], None] = lambda _text: None
    replies: ElicitationResults | None = None
    elicit: ElicitCallback = cancel_without_user
    conversation: ConversationKey | None = None


class ToolCaller(Protocol):
    """Runs calls of tools: those of servers, the built-in ones, or both."""

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. A failure of the tool is a result. Raises CancelledError only; a cancellation is sent on to the
        server.
        """


class Toolbox(ToolCaller, Protocol):
    """The tools of all servers."""

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        """Return the usable tools of a workspace: those of its own servers and of the shared ones. Waits, within a
        limit, for servers that connect for the first time.
        """

    async def confirm(self, server_id: str, context: CallContext) -> str:
        """Refresh this server's tools in the session that a call in this context would use, within a time limit, so
        that outdated ones are not called. Return the reason of a failure as a sentence for the model; empty on success
        or if there is no such server.
        """

    def argument_error(self, tool: Tool, call: ToolCall) -> str:
        """Return the error of invalid arguments, as text for the model; empty if they are valid or cannot be
        checked.
        """

    def validate(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[ArgumentError]:
        """Return the values that violate the schema of a tool, server or form; empty if all are valid or the schema
        cannot be evaluated.
        """

    def secret_spans(self, server_id: str, text: str) -> Sequence[SecretSpan]:
        """Return the positions of this server's secrets in a text. Secrets of other servers are ignored, because a call
        of one server must not confirm a guess of another one's secret.
        """


class ServerAdmin(Protocol):
    """Connections to all servers, for their administration. Servers are named by id. Methods with a server raise
    NotFound.
    """

    @property
    def enabled(self) -> bool:
        """False if MCP is switched off."""

    async def wait_ready(self) -> None:
        """Wait, within a limit, for servers that are connecting for the first time."""

    async def reconcile(self, entries: Sequence[DesiredServer]) -> None:
        """Run exactly these servers: new ones connect if they should, changed ones reconnect, removed ones close. Calls
        to unchanged servers continue.
        """

    @property
    def review(self) -> ReviewPolicy:
        """Policy for tools without a pinned definition."""

    def by_server(self, tool: Tool) -> Tool:
        """Return a tool under a name that reaches it at its own server, although its usual name may be another's."""

    def requests(self, server: str) -> Sequence[Tool]:
        """Return the resources and prompts of a server as tools (`ToolKind`)."""

    def unpinned_tools(self, server: str) -> Sequence[Tool]:
        """Return the tools that wait for a review, in the server's order: new, changed and flagged ones. `review`
        decides if they are offered.
        """

    def refused_tools(self, server: str) -> Sequence[Tool]:
        """Return the tools with a refused definition, in the server's order. They are not offered."""

    def snapshot(self, server: str) -> ServerSnapshot:
        """Return the state of one server, as in `servers`."""

    def servers(self) -> Sequence[ServerSnapshot]:
        """Return the state of every server, by name, without secrets."""

    def capabilities(self, server: str) -> ServerCapabilities:
        """Return the known capabilities of a server."""

    async def connect(self, server: str) -> ServerSnapshot:
        """Connect the server if it is not connected. Return its resulting state."""

    async def sync(self, server: str) -> ServerCapabilities:
        """Fetch and store all capabilities of the server. Raises ServerTrouble."""

    async def sync_all(self) -> None:
        """Fetch and store the capabilities of every connected server. A failure of one does not affect the others."""

    def diagnose(self, server: str) -> AsyncGenerator[Check, None]:
        """Check a stored server, with the state of its tools and last calls."""

    async def read_resource(self, server: str, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Return the text of a prompt. Raises ServerTrouble."""

    async def complete(self, server: str, of: CompletionTarget, given: Mapping[str, str]) -> Sequence[str]:
        """Return the server's suggestions for a value, best first, at most 100. None if it has no suggestions, cannot
        be asked or takes longer than a second and a half. `given` are the values of other arguments.
        """


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Completed sign-in: the user, the server by id, the conversation of the request, and `on_page` of it."""

    server: str
    by: Author
    conversation: ConversationKey
    on_page: bool = False


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """Response of an authorization server in a user's browser, a code or an error (RFC 6749 4.1.2), at the redirect
    address that ends in `callback`. `issuer` is None if the response does not name one (RFC 9207).
    """

    callback: str
    state: str = field(repr=False)
    code: str = field(repr=False)
    issuer: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SignInInfo:
    """Visible facts of a sign-in: the principal of the user, the time (epoch seconds), and the issuer of the tokens."""

    by: str
    since: float
    issuer: str


class SignIns(Protocol):
    """Sign-ins to servers by OAuth, for admins and the redirect page. Only available if the operator has set the bot's
    public address.
    """

    async def is_available(self, server: str) -> bool:
        """Return True if a user can sign in to a server, by id, in a browser: its definition says so, there are tokens,
        or it last demanded a sign-in and an authorization server is known or found now. Raises NotFound.
        """

    def redirect_uri(self, server: str) -> str:
        """Return the OAuth redirect URI of this server, for registration at its authorization server."""

    async def begin(self, server: str, by: Author, conversation: ConversationKey, *, on_page: bool = False) -> str:
        """Return the authorization URL for this user only, valid for `SIGN_IN_SECONDS`. Discovers the authorization
        server and registers there, within a time limit. Raises NotFound and ServerTrouble.
        """

    async def complete(
        self, response: AuthorizationResponse, allowed: Callable[[SignedIn], Awaitable[None]]
    ) -> SignedIn:
        """Finish a sign-in from its code or error: store the tokens and connect the server. The state is used up first.
        `allowed` then checks the user's rights before the tokens are fetched; its exceptions pass through. Raises
        NotFound if the server is gone or the state is unknown, used or expired; ServerTrouble, with cause and fix for
        users.
        """

    async def get(self, server: str) -> SignInInfo | None:
        """Return the sign-in if there are tokens for the server's current address, or None. Raises DatabaseError."""

    async def sign_out(self, server: str, by: Author) -> bool:
        """Sign out: delete the tokens, and revoke them if the server supports it. Return False if there were none."""


class SignInStore(Protocol):
    """OAuth sign-ins, stored encrypted, and pending ones. Expiry is by the database's clock. Every process is notified
    of changes. All methods raise DatabaseError; those that encrypt or decrypt also raise SecretUnavailable.
    """

    async def find(self, key: SignInKey) -> SignIn | None:
        """Return the stored sign-in; None if it is missing or unreadable by this release."""

    async def versions(self) -> Mapping[SignInKey, int]:
        """Return the version of every stored sign-in."""

    async def save(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Store new tokens or a new registration under the next version. Return None if the stored version is not
        `sign_in.version` (0: none stored).
        """

    async def signed_in(self, key: SignInKey, sign_in: SignIn, by: Author) -> SignIn:
        """Replace any stored sign-in by this new one. Audited."""

    async def mark_revoked(self, key: SignInKey, sign_in: SignIn) -> SignIn | None:
        """Delete tokens that the authorization server has revoked, and keep the registration. Returns as `save`.
        Audited.
        """

    async def forget(self, key: SignInKey, by: Author) -> bool:
        """Delete a stored sign-in. Return False if there was none. Audited."""

    async def begin(self, under_way: PendingSignIn) -> str:
        """Store a pending sign-in for `SIGN_IN_SECONDS`, replacing this user's other one for the server. Return the
        state for the link, which is not stored.
        """

    async def take(self, state: str) -> PendingSignIn | None:
        """Use up the state of a link. Return its pending sign-in to one of several callers; None if the state is not
        valid.
        """
