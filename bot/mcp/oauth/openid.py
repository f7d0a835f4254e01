"""Sign-in of users at the operator's issuer: OpenID Connect Core 1.0, the authorization code flow with PKCE.

Metadata and keys of the issuer are kept for CACHE_SECONDS. PyJWT verifies ID tokens, and is loaded for the first one.
"""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import OAuthMetadata
from pydantic import ValidationError

from bot.domain.characters import visible
from bot.domain.openid import Identity, OpenIdRequest
from bot.domain.servers import OAuthTerms
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import AllowedTargets, resolve_host
from bot.mcp.oauth.client import check_metadata, manual_registration, token_fields, token_request
from bot.mcp.oauth.http import AuthServerClient, open_client, open_operator_transport, validate_url
from bot.mcp.oauth.sign_ins import check_issuer, code_challenge, with_parameters
from bot.mcp.redaction import Redaction, Secret
from bot.ports import AuthorizationResponse

if TYPE_CHECKING:
    import jwt

CACHE_SECONDS = 3600.0
LEEWAY_SECONDS = 60.0
"""Seconds by which the clocks of the issuer and the bot may differ."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by public keys alone, because a client's secret must not sign."""
_REQUIRED = ("iss", "sub", "aud", "exp", "iat", "nonce")
_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")
_CODE = re.compile(r"[a-z_]{1,60}")
_LONGEST_NAME = 80
_AGAIN = gettext_lazy("sign in again")
_OPERATOR = gettext_lazy("tell the operator of the bot")
_REASONS = {
    "InvalidSignatureError": (gettext_lazy("no key of the issuer has signed it"), _OPERATOR),
    "InvalidAudienceError": (gettext_lazy("it is for another application"), _OPERATOR),
    "InvalidIssuerError": (gettext_lazy("it is of another issuer"), _OPERATOR),
    "ExpiredSignatureError": (
        gettext_lazy("it has expired, or the clock of the bot is fast"),
        gettext_lazy("sign in again; if that does not help, the operator sets the clock of the bot's machine"),
    ),
    "ImmatureSignatureError": (
        gettext_lazy("it is not valid yet: the clock of the bot is slow, or that of the issuer is fast"),
        gettext_lazy("the operator sets the clock of the bot's machine"),
    ),
}
"""Causes and fixes by the names of PyJWT's errors."""


@dataclass(frozen=True, slots=True)
class _Provider:
    """Metadata of the issuer."""

    metadata: OAuthMetadata
    jwks_uri: str
    userinfo_endpoint: str


class OpenIdConnect:
    """The operator's issuer (`bot.ports.openid.OpenIdIssuer`). Ids of Slack count if it is `slack_issuer`."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str,
        allowances: AllowedTargets,
        *,
        slack_issuer: str = "",
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._terms = OAuthTerms(client_id=client_id, client_secret=client_secret)
        self._allowances = allowances
        self._is_slack = issuers_match(issuer, slack_issuer)
        self._elapsed = elapsed
        self._provider: tuple[float, _Provider] | None = None
        self._keys: tuple[float, Sequence[dict[str, Any]]] | None = None

    @property
    def origin(self) -> str:
        """Scheme and host."""
        parts = urlsplit(self._issuer)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def client(self) -> str:
        """The issuer and the client id."""
        return f"{self._issuer} {self._terms.client_id}"

    async def authorization_url(self, request: OpenIdRequest) -> str:
        """Return the address at which a user signs in. Raises ServerTrouble."""
        async with self._open() as issuer:
            provider = await self._discover(issuer)
        query = {
            "response_type": "code",
            "client_id": self._terms.client_id,
            "redirect_uri": request.redirect_uri,
            "scope": "openid email profile",
            "state": request.state,
            "nonce": request.nonce,
            "code_challenge": code_challenge(request.verifier),
            "code_challenge_method": "S256",
        }
        return with_parameters(str(provider.metadata.authorization_endpoint), query)

    async def identify(self, response: AuthorizationResponse, request: OpenIdRequest) -> Identity:
        """Return the user whom the issuer has sent back. Raises ServerTrouble."""
        async with self._open() as issuer:
            provider = await self._discover(issuer)
            check_issuer(provider.metadata, response.issuer)
            if response.error or not response.code:
                raise self._denial(response.error)
            try:
                tokens = await self._request_tokens(issuer, provider, response.code, request)
            except ServerTrouble as trouble:
                # The text of a rejection may repeat secrets of the request.
                known = (response.code, request.verifier, self._terms.client_secret)
                raise ServerTrouble(Redaction(map(Secret, known))(trouble.cause), trouble.fix) from trouble
            claims = await self._verify(issuer, provider, tokens.get("id_token"), request.nonce)
            if "email" not in claims:
                claims = {**await self._userinfo(issuer, provider, tokens.get("access_token"), claims["sub"]), **claims}
        return self._identity(claims)

    def _open(self) -> AbstractAsyncContextManager[AuthServerClient]:
        return open_client(open_operator_transport(self._issuer, self._allowances, resolve_host))

    async def _discover(self, issuer: AuthServerClient) -> _Provider:
        if self._provider is None or self._elapsed() - self._provider[0] > CACHE_SECONDS:
            url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
            document = await _get_object(issuer, url)
            try:
                metadata = OAuthMetadata.model_validate(document)
            except ValidationError as error:
                cause = gettext_lazy("{url} does not describe an issuer of OpenID Connect.", url=url)
                raise ServerTrouble(cause, _OPERATOR) from error
            if not issuers_match(str(metadata.issuer), self._issuer):
                cause = gettext_lazy("{issuer} says that it is another one.", issuer=self._issuer)
                raise ServerTrouble(cause, gettext_lazy("the operator sets OIDC_ISSUER to its own name for itself"))
            check_metadata(metadata, self._issuer)
            jwks_uri = validate_url(str(document.get("jwks_uri", "")), gettext_lazy("address of the keys"))
            userinfo = str(document.get("userinfo_endpoint") or "")
            self._provider = self._elapsed(), _Provider(metadata, jwks_uri, userinfo)
        return self._provider[1]

    async def _request_tokens(
        self, issuer: AuthServerClient, provider: _Provider, code: str, request: OpenIdRequest
    ) -> Mapping[str, Any]:
        registration = manual_registration(provider.metadata, self._terms, None)
        proof = {"redirect_uri": request.redirect_uri, "code_verifier": request.verifier}
        form = {"grant_type": "authorization_code", "code": code, **proof}
        response = await issuer.send(token_request(str(provider.metadata.token_endpoint), form, registration))
        return token_fields(response, registration.issuer)

    async def _verify(
        self, issuer: AuthServerClient, provider: _Provider, token: object, nonce: str
    ) -> Mapping[str, Any]:
        """Return the claims of an ID token (OpenID Connect Core 3.1.3.7). Raises ServerTrouble."""
        import jwt  # noqa: PLC0415 - few processes verify one

        try:
            claims: dict[str, Any] = jwt.decode(
                str(token),
                await self._find_key(issuer, provider, jwt.get_unverified_header(str(token))),
                algorithms=_ALGORITHMS,
                audience=self._terms.client_id,
                issuer=str(provider.metadata.issuer),
                leeway=LEEWAY_SECONDS,
                options={"require": list(_REQUIRED), "enforce_minimum_key_length": True},
            )
        except jwt.PyJWTError as error:
            raise _rejection(
                *_REASONS.get(type(error).__name__, (gettext_lazy("it is not valid"), _OPERATOR))
            ) from error
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", "" if several else self._terms.client_id) != self._terms.client_id:
            raise _rejection(*_REASONS["InvalidAudienceError"])
        if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise _rejection(gettext_lazy("it answers another sign-in"), _AGAIN)
        if not _SUBJECT.fullmatch(claims["sub"]):
            raise _rejection(gettext_lazy("it does not name a user"), _OPERATOR)
        return claims

    async def _find_key(self, issuer: AuthServerClient, provider: _Provider, header: Mapping[str, Any]) -> jwt.PyJWK:
        """Return the key that a header names. If it is not kept, all are requested again. Raises PyJWTError and
        ServerTrouble.
        """
        import jwt  # noqa: PLC0415 - few processes verify one

        algorithm = header.get("alg")
        if algorithm not in _ALGORITHMS:
            raise jwt.InvalidAlgorithmError
        key = self._kept_key(header.get("kid"))
        if key is None:
            keys = (await _get_object(issuer, provider.jwks_uri)).get("keys")
            signing = [key for key in keys or () if isinstance(key, dict) and key.get("use", "sig") == "sig"]
            self._keys = self._elapsed(), signing
            key = self._kept_key(header.get("kid"))
        if key is None:
            raise jwt.InvalidSignatureError
        if key.get("alg", algorithm) != algorithm:
            raise jwt.InvalidAlgorithmError
        return jwt.PyJWK(key, algorithm)

    def _kept_key(self, key_id: str | None) -> dict[str, Any] | None:
        """Return the key with an id, the only one without an id. None if it is not kept."""
        if self._keys is None or self._elapsed() - self._keys[0] > CACHE_SECONDS:
            return None
        fitting = [key for key in self._keys[1] if key_id in (None, key.get("kid"))]
        return fitting[0] if len(fitting) == 1 else None

    async def _userinfo(
        self, issuer: AuthServerClient, provider: _Provider, token: object, subject: str
    ) -> Mapping[str, Any]:
        """Return the claims that an issuer keeps out of ID tokens (OpenID Connect Core 5.3); empty without any."""
        if not provider.userinfo_endpoint or not isinstance(token, str):
            return {}
        endpoint = validate_url(provider.userinfo_endpoint, gettext_lazy("address of the claims"))
        claims = await _get_object(issuer, endpoint, {"authorization": f"Bearer {token}"})
        return claims if claims.get("sub") == subject else {}

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        email, verified = claims.get("email"), claims.get("email_verified")
        if email and verified is not None and verified is not True:
            raise ServerTrouble(
                gettext_lazy("{issuer} has not verified your e-mail address.", issuer=urlsplit(self._issuer).netloc),
                gettext_lazy("verify it there, then sign in again"),
            )
        names = (claims.get(key) for key in ("name", "preferred_username", "email"))
        name = next((name for name in names if isinstance(name, str) and name.strip()), claims["sub"])
        slack = [str(claims.get(f"https://slack.com/{key}") or "") if self._is_slack else "" for key in _SLACK_IDS]
        email = email if isinstance(email, str) and verified is True else ""
        return Identity(claims["sub"], visible(name)[:_LONGEST_NAME], email, *slack)

    def _denial(self, error: str) -> ServerTrouble:
        reason = error if _CODE.fullmatch(error) else gettext_lazy("no code came back")
        if error == "access_denied":
            reason = gettext_lazy("it was denied")
        cause = gettext_lazy(
            "{issuer} did not let you in: {reason}.", issuer=urlsplit(self._issuer).netloc, reason=reason
        )
        return ServerTrouble(cause, _AGAIN)


_SLACK_IDS = ("team_id", "user_id")


def _rejection(reason: str, fix: str) -> ServerTrouble:
    return ServerTrouble(gettext_lazy("The issuer's answer was not used: {reason}.", reason=reason), fix)


async def _get_object(
    issuer: AuthServerClient, url: str, headers: Mapping[str, str] | None = None
) -> Mapping[str, Any]:
    """Return a JSON object. Raises ServerTrouble."""
    response = await issuer.send(httpx2.Request("GET", url, headers=dict(headers or {})))
    try:
        found = response.json() if response.status_code == 200 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ServerTrouble(
            gettext_lazy("{url} did not answer as expected: {status}.", url=url, status=response.status_code),
            gettext_lazy("try again later"),
        )
    return found
