"""Signing in to MCP servers by OAuth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from bot.domain.conversations import Author, ConversationKey


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Completed sign-in: the user, the server by id, and the conversation of the request."""

    server: str
    by: Author
    conversation: ConversationKey


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """A code or an error that somebody brings back (RFC 6749 4.1.2), to the redirect address that ends in `callback`.
    `issuer` is None if the answer does not name one (RFC 9207).
    """

    callback: str
    state: str = field(repr=False)
    code: str = field(repr=False)
    issuer: str | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SignInInfo:
    """A sign-in as people may see it: the principal who has signed the bot in, since when (epoch seconds), and the
    issuer of its tokens.
    """

    by: str
    since: float
    issuer: str


class SignIns(Protocol):
    """Signing in to servers by OAuth, as whoever administers them and the page they come back to use it. Only where
    the operator has said under which address people reach the bot.
    """

    async def is_available(self, server: str) -> bool:
        """Return True if a user can sign in to a server, by id, in a browser: its definition says so, or it demanded
        a sign-in at the last connection.
        """

    def redirect_uri(self, server: str) -> str:
        """Return the OAuth redirect URI of this server, for registration at its authorization server."""

    async def begin(self, server: str, by: Author, conversation: ConversationKey) -> str:
        """The address at which this person signs the bot in: for them alone, good for `SIGN_IN_SECONDS`. Finds the
        authorization server and registers with it, within a limit. Raises NotFound and ServerTrouble.
        """

    async def complete(
        self, response: AuthorizationResponse, allowed: Callable[[SignedIn], Awaitable[None]]
    ) -> SignedIn:
        """Finish a sign-in from its code or error: fetch and store the tokens, and connect the server. `allowed`
        first checks the user's rights; its exceptions pass through. Raises NotFound if the state is unknown, used or
        expired; ServerTrouble, with cause and fix for users.
        """

    async def get(self, server: str) -> SignInInfo | None:
        """The sign-in there is, if there are tokens. Raises DatabaseError."""

    async def sign_out(self, server: str, by: Author) -> bool:
        """Sign out: the tokens are revoked where the server can do that, and forgotten. False if there were none."""
