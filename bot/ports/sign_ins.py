"""Sign-ins to MCP servers by OAuth: the service for admins and the redirect page, and the store behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bot.domain.conversations import Author, ConversationKey
from bot.domain.sign_ins import PendingSignIn, SignIn, SignInKey


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Completed sign-in: the user, the server by id, and the conversation of the request."""

    server: str
    by: Author
    conversation: ConversationKey


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

    async def begin(self, server: str, by: Author, conversation: ConversationKey) -> str:
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
