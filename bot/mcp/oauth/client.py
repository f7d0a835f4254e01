"""The bot as a client of an authorization server: registration, token requests and revocation.

Registration is tried in this order: a client id set by an admin, the URL of the bot's client metadata (CIMD), dynamic
registration (RFC 7591). Token requests use an authorization code, a refresh token or client credentials; revocation is
RFC 7009.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    is_valid_client_metadata_url,
    issuers_match,
    should_use_client_metadata_url,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from bot.domain.characters import visible
from bot.domain.servers import OAuthTerms
from bot.domain.sign_ins import PendingSignIn, Registration, SignIn, callback_path, client_path
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.oauth.http import AuthServerClient, TokenRequestRejected, validate_url

NAME = "Countersign"
GRANTS = ("authorization_code", "refresh_token")
Method = Literal["client_secret_basic", "client_secret_post", "none"]
BASIC: Method = "client_secret_basic"
POST: Method = "client_secret_post"
NONE: Method = "none"
_WITH_SECRET = (BASIC, POST)
_ENDPOINT = gettext_lazy("registration endpoint")
_END_OF_TIME = 10**12


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Redirect URI and metadata URL of the bot for one MCP server. The metadata URL is empty if there is none."""

    redirect_uri: str
    metadata_url: str = ""

    @classmethod
    def from_address(cls, address: str, server_id: str) -> ClientIdentity:
        """Return the identity for a server. `address` is the bot's public URL. Metadata needs an https URL."""
        described = f"{address}{client_path(server_id)}" if address.startswith("https://") else ""
        return cls(f"{address}{callback_path(server_id)}", described)


@dataclass(frozen=True, slots=True)
class ClientRegistrar:
    """Registrar of the bot. `now` is in epoch seconds."""

    metadata: OAuthMetadata
    identity: ClientIdentity
    auth_server: AuthServerClient
    now: float

    async def register(self, terms: OAuthTerms, known: Registration | None, scope: str) -> Registration:
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
                gettext_lazy(
                    "The authorization server {issuer} does not allow the bot to register itself.",
                    issuer=metadata.issuer,
                ),
                self._by_hand,
            )
        return await self._register(str(metadata.registration_endpoint), scope)

    @property
    def _by_hand(self) -> str:
        return gettext_lazy(
            "register an application there by hand, with the redirect address {redirect_uri}, and set "
            "the server's client_id to what it is given, and its secret if it is given one",
            redirect_uri=self.identity.redirect_uri,
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
        wanted = _prefer(_methods(self.metadata), (*_WITH_SECRET, NONE), BASIC)
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
            given = await handle_registration_response(await self.auth_server.send(request))
        except OAuthRegistrationError as error:
            cause = gettext_lazy(
                "The authorization server {issuer} does not register the bot.", issuer=self.metadata.issuer
            )
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
            gettext_lazy(
                "The server names another authorization server than before, {issuer} in place of {former}, "
                "and the bot's client_id and secret are for that one.",
                issuer=metadata.issuer,
                former=known.issuer,
            ),
            gettext_lazy(
                "if that is meant, sign out of the server, register the bot there and set its client_id and secret "
                "again"
            ),
        )
    method = _prefer(_methods(metadata), _WITH_SECRET, BASIC) if terms.client_secret else NONE
    return Registration(str(metadata.issuer), terms.client_id, terms.client_secret, method)


def _unsupported_reason(method: str) -> str:
    """Return the reason why an authentication method is not supported."""
    if method in _WITH_SECRET:
        return gettext_lazy("it wants a secret and has given none")
    return gettext_lazy("it wants to be shown who the bot is by {method}", method=f"{method[:40]!r}")


def _auth_method(given: OAuthClientInformationFull, wanted: str) -> str:
    """Return the authentication method. The server may choose another than requested (RFC 7591 3.2.1)."""
    assumed = (wanted if wanted in _WITH_SECRET else BASIC) if given.client_secret else NONE
    method = given.token_endpoint_auth_method or assumed
    if method not in (*_WITH_SECRET, NONE) or (method in _WITH_SECRET and not given.client_secret):
        raise ServerTrouble(
            gettext_lazy(
                "The authorization server has registered the bot in an unusable way: {reason}.",
                reason=_unsupported_reason(method),
            ),
            gettext_lazy(
                "register an application there by hand, and give its id and secret with --client-id and --secret"
            ),
        )
    return method


def _methods(metadata: OAuthMetadata) -> Sequence[str]:
    """Return the supported methods. RFC 8414 2: if omitted, the default is client_secret_basic."""
    return metadata.token_endpoint_auth_methods_supported or (BASIC,)


def _prefer(offered: Sequence[str], wanted: Sequence[Method], otherwise: Method) -> Method:
    return next((choice for choice in wanted if choice in offered), otherwise)


_EARLY_SECONDS = 60.0
"""A token is refreshed this many seconds before it expires, or at half of its lifetime if that is earlier."""
_LONGEST_LIFE = 10 * 365 * 86_400
_CODE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e ]{1,60}")
"""Error code (RFC 6749 5.2)."""
_LONGEST_QUOTE = 200
_LATER = frozenset(("temporarily_unavailable", "server_error", "slow_down"))


async def exchange_code(under_way: PendingSignIn, code: str, auth_server: AuthServerClient, now: float) -> SignIn:
    """Exchange a code. Return the sign-in with its tokens. Raises ServerTrouble."""
    proof = {"redirect_uri": under_way.redirect_uri, "code_verifier": under_way.verifier}
    form = {"grant_type": "authorization_code", "code": code, **proof}
    return _with_token(under_way.sign_in, await _request_tokens(under_way.sign_in, form, auth_server), now)


async def exchange_refresh_token(sign_in: SignIn, auth_server: AuthServerClient, now: float) -> SignIn:
    """Refresh the tokens. Return the changed sign-in. Raises ServerTrouble."""
    form = {"grant_type": "refresh_token", "refresh_token": sign_in.refresh_token}
    return _with_token(sign_in, await _request_tokens(sign_in, form, auth_server), now)


async def client_credentials_grant(sign_in: SignIn, auth_server: AuthServerClient, now: float) -> SignIn:
    """Get a token for the bot itself. Return the changed sign-in. Raises ServerTrouble."""
    form = {"grant_type": "client_credentials"}
    if sign_in.scope:
        form["scope"] = sign_in.scope
    return _with_token(sign_in, await _request_tokens(sign_in, form, auth_server), now)


async def revoke(sign_in: SignIn, auth_server: AuthServerClient) -> None:
    """Revoke the tokens if the server supports that. Raises ServerTrouble."""
    endpoint = sign_in.endpoints.get("revocation_endpoint")
    token, kind = (sign_in.refresh_token, "refresh_token") if sign_in.refresh_token else (sign_in.access_token, "")
    if not endpoint or not token:
        return
    form = {"token": token, **({"token_type_hint": kind} if kind else {})}
    await auth_server.send(
        _request(validate_url(str(endpoint), gettext_lazy("revocation endpoint")), form, sign_in.registration)
    )


async def _request_tokens(sign_in: SignIn, form: Mapping[str, str], auth_server: AuthServerClient) -> OAuthToken:
    endpoint = validate_url(str(sign_in.endpoints["token_endpoint"]), gettext_lazy("token endpoint"))
    response = await auth_server.send(_request(endpoint, {**form, "resource": sign_in.resource}, sign_in.registration))
    return _parse_tokens(response, sign_in.registration.issuer)


def _request(endpoint: str, form: Mapping[str, str], registration: Registration) -> httpx2.Request:
    """Return a request with the client's authentication (RFC 6749 2.3.1)."""
    name, secret = registration.client_id, registration.client_secret
    if registration.method == BASIC and secret:
        pair = base64.b64encode(f"{quote(name, safe='')}:{quote(secret, safe='')}".encode()).decode("ascii")
        return httpx2.Request("POST", endpoint, data=dict(form), headers={"authorization": f"Basic {pair}"})
    credentials = {"client_id": name, **({"client_secret": secret} if registration.method == POST and secret else {})}
    return httpx2.Request("POST", endpoint, data={**form, **credentials})


def _parse_tokens(response: httpx2.Response, issuer: str) -> OAuthToken:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) else {}
    error = body.get("error")
    if isinstance(error, str) and "access_token" not in body and response.status_code < 500 and error not in _LATER:
        # Some servers send errors with status 200.
        raise _refusal(issuer, error, body.get("error_description"))
    if response.status_code not in (200, 201):
        raise ServerTrouble(
            gettext_lazy("{issuer} gave no token: {status}.", issuer=issuer, status=response.status_code),
            gettext_lazy("try again later"),
        )
    try:
        token = OAuthToken.model_validate({key: value for key, value in body.items() if value is not None})
    except ValidationError as unreadable:
        raise ServerTrouble(
            gettext_lazy(
                "{issuer} gave no token that can be used: its answer is not in the form that OAuth wants.",
                issuer=issuer,
            ),
            gettext_lazy("ask the operator of the authorization server"),
        ) from unreadable
    if not token.access_token or not _is_token_text(token.access_token):
        raise ServerTrouble(
            gettext_lazy("{issuer} gave a token that no header can carry.", issuer=issuer),
            gettext_lazy("ask its operator"),
        )
    if not _is_token_text(token.refresh_token or "") or not _is_token_text(token.scope or ""):
        raise ServerTrouble(
            gettext_lazy("{issuer} gave a token that cannot be sent back as it is.", issuer=issuer),
            gettext_lazy("ask its operator"),
        )
    return token


def _is_token_text(text: str) -> bool:
    """Return True for the characters of tokens and scopes (RFC 6749, A.4, A.12, A.17)."""
    return text.isascii() and text.isprintable()


def _refusal(issuer: str, error: str, description: object) -> TokenRequestRejected:
    error = error if _CODE.fullmatch(error) else "error"
    reason = visible(description)[:_LONGEST_QUOTE].rstrip(". ") if isinstance(description, str) else ""
    cause = (
        gettext_lazy("{issuer} gave no token: {error} ({reason}).", issuer=issuer, error=error, reason=reason)
        if reason
        else gettext_lazy("{issuer} gave no token: {status}.", issuer=issuer, status=error)
    )
    return TokenRequestRejected(
        cause, gettext_lazy("sign in again; if that does not help, check the server's client_id and secret"), error
    )


def _with_token(sign_in: SignIn, token: OAuthToken, now: float) -> SignIn:
    """Return the sign-in with the new token. Fields missing in the response stay (RFC 6749 5.1, 6)."""
    life = None if token.expires_in is None else float(min(max(token.expires_in, 0), _LONGEST_LIFE))
    return replace(
        sign_in,
        access_token=token.access_token,
        refresh_token=token.refresh_token or sign_in.refresh_token,
        scope=sign_in.scope if token.scope is None else token.scope,
        expires_at=None if life is None else now + life,
        renew_at=None if life is None else now + max(life - _EARLY_SECONDS, life / 2),
    )
