"""Registration of the bot at an authorization server.

In this order: a client id set by an admin, the URL of the bot's client metadata (CIMD), dynamic registration (RFC
7591).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    is_valid_client_metadata_url,
    issuers_match,
    should_use_client_metadata_url,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl

from bot.domain.servers import OAuthTerms
from bot.domain.sign_ins import Registration, callback_path, client_path
from bot.errors import ServerTrouble
from bot.mcp.oauth.http import AuthServerClient, validate_url

NAME = "Countersign"
GRANTS = ("authorization_code", "refresh_token")
Method = Literal["client_secret_basic", "client_secret_post", "none"]
BASIC: Method = "client_secret_basic"
POST: Method = "client_secret_post"
NONE: Method = "none"
_WITH_SECRET = (BASIC, POST)
_ENDPOINT = "registration endpoint"
_END_OF_TIME = 10**12


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Redirect URI and metadata URL of the bot for one MCP server. The metadata URL is empty if there is none."""

    redirect_uri: str
    metadata_url: str = ""

    @classmethod
    def at(cls, address: str, server_id: str) -> ClientIdentity:
        """Return the identity for a server. `address` is the bot's public URL. Metadata needs an https URL."""
        described = f"{address}{client_path(server_id)}" if address.startswith("https://") else ""
        return cls(f"{address}{callback_path(server_id)}", described)


@dataclass(frozen=True, slots=True)
class ClientRegistrar:
    """Registrar of the bot. `now` is in epoch seconds."""

    metadata: OAuthMetadata
    identity: ClientIdentity
    ask: AuthServerClient
    now: float

    async def registered(self, terms: OAuthTerms, known: Registration | None, scope: str) -> Registration:
        """Return the registration at this authorization server. `known` is the previous one. Raises ServerTrouble."""
        metadata, identity = self.metadata, self.identity
        if terms.client_id:
            return manual_registration(metadata, terms, known)
        if known is not None and self._is_valid(known):
            return known
        if is_valid_client_metadata_url(identity.metadata_url) and should_use_client_metadata_url(
            metadata, identity.metadata_url
        ):
            return Registration(str(metadata.issuer), identity.metadata_url, redirect_uri=identity.redirect_uri)
        if metadata.registration_endpoint is None:
            raise ServerTrouble(
                f"The authorization server {metadata.issuer} does not allow the bot to register itself.", self._by_hand
            )
        return await self._register(str(metadata.registration_endpoint), scope)

    @property
    def _by_hand(self) -> str:
        return (
            f"register an application there by hand, with the redirect address {self.identity.redirect_uri}, and set "
            "the server's client_id to what it is given, and its secret if it is given one"
        )

    def _is_valid(self, known: Registration) -> bool:
        """Return True if the registration belongs to this authorization server (MCP specification 2026-07-28) and
        is valid.
        """
        return (
            issuers_match(known.issuer, str(self.metadata.issuer))
            and known.redirect_uri == self.identity.redirect_uri
            and (known.expires_at is None or self.now < known.expires_at)
        )

    async def _register(self, endpoint: str, scope: str) -> Registration:
        """Register dynamically (RFC 7591)."""
        back = self.identity.redirect_uri
        wanted = _preferred(_methods(self.metadata), (*_WITH_SECRET, NONE), BASIC)
        described = OAuthClientMetadata(
            client_name=NAME,
            redirect_uris=[AnyUrl(back)],
            grant_types=list(GRANTS),
            response_types=["code"],
            token_endpoint_auth_method=wanted,
            application_type="web" if urlsplit(back).scheme == "https" else "native",
            scope=scope or None,
        )
        request = create_client_registration_request(self.metadata, described, validate_url(endpoint, _ENDPOINT))
        try:
            given = await handle_registration_response(await self.ask.ask(request))
        except OAuthRegistrationError as error:
            cause = f"The authorization server {self.metadata.issuer} does not register the bot."
            raise ServerTrouble(cause, self._by_hand) from error
        expires = given.client_secret_expires_at
        return Registration(
            str(self.metadata.issuer),
            given.client_id,
            given.client_secret or "",
            _auth_method(given, wanted),
            float(min(expires, _END_OF_TIME)) if expires else None,
            back,
        )


def manual_registration(metadata: OAuthMetadata, terms: OAuthTerms, known: Registration | None) -> Registration:
    """Return the registration that an admin entered. It is bound to the first authorization server that it was used
    at, because a malicious MCP server could name another one. Raises ServerTrouble.
    """
    same = known is not None and (
        known.client_id == terms.client_id or known.client_secret == terms.client_secret != ""
    )
    if known is not None and same and not issuers_match(known.issuer, str(metadata.issuer)):
        raise ServerTrouble(
            f"The server names another authorization server than before, {metadata.issuer} in place of {known.issuer}, "
            "and the bot's client_id and secret are for that one.",
            "if that is meant, sign out of the server, register the bot there and set its client_id and secret again",
        )
    method = _preferred(_methods(metadata), _WITH_SECRET, BASIC) if terms.client_secret else NONE
    return Registration(str(metadata.issuer), terms.client_id, terms.client_secret, method)


def _unsupported_reason(method: str) -> str:
    """Return the reason why an authentication method is not supported."""
    if method in _WITH_SECRET:
        return "it wants a secret and has given none"
    return f"it wants to be shown who the bot is by {method[:40]!r}"


def _auth_method(given: OAuthClientInformationFull, wanted: str) -> str:
    """Return the authentication method. The server may choose another than requested (RFC 7591 3.2.1)."""
    assumed = (wanted if wanted in _WITH_SECRET else BASIC) if given.client_secret else NONE
    method = given.token_endpoint_auth_method or assumed
    if method not in (*_WITH_SECRET, NONE) or (method in _WITH_SECRET and not given.client_secret):
        raise ServerTrouble(
            f"The authorization server has registered the bot in an unusable way: {_unsupported_reason(method)}.",
            "register an application there by hand, and give its id and secret with --client-id and --secret",
        )
    return method


def _methods(metadata: OAuthMetadata) -> Sequence[str]:
    """Return the supported methods. RFC 8414 2: if omitted, the default is client_secret_basic."""
    return metadata.token_endpoint_auth_methods_supported or (BASIC,)


def _preferred(offered: Sequence[str], wanted: Sequence[Method], otherwise: Method) -> Method:
    return next((each for each in wanted if each in offered), otherwise)
