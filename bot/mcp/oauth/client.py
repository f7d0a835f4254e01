"""The bot as a client of authorization servers: discovery, registration, token requests and revocation.

Discovery of a server's authorization server is RFC 9728, then RFC 8414 or OpenID Connect Discovery. The MCP library
builds the URLs and parses the responses; this module adds checks that the library lacks.

Registration is tried in this order: a client id set by an admin, the URL of the bot's client metadata (CIMD), dynamic
registration (RFC 7591). Token requests use an authorization code, a refresh token or client credentials; revocation is
RFC 7009.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    create_oauth_metadata_request,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    is_valid_client_metadata_url,
    issuers_match,
    should_use_client_metadata_url,
    union_scopes,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, ValidationError

from bot.domain.characters import visible
from bot.domain.servers import OAuthTerms
from bot.domain.sign_ins import Registration, SignIn, callback_path, client_path
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import parse_ip
from bot.mcp.oauth.http import AuthServerClient, TokenRequestRejected, is_loopback, validate_url

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

NAME = "Countersign"
GRANTS = ("authorization_code", "refresh_token")
Method = Literal["client_secret_basic", "client_secret_post", "none"]
BASIC: Method = "client_secret_basic"
POST: Method = "client_secret_post"
NONE: Method = "none"
_WITH_SECRET = (BASIC, POST)
_END_OF_TIME = 10**12
_BOUND_TYPES = ("dpop", "mac", "pop")
"""Types of tokens that are no use to a bearer."""
_KEPT = frozenset(
    (
        "issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint",
        "scopes_supported", "grant_types_supported", "token_endpoint_auth_methods_supported",
        "code_challenge_methods_supported", "client_id_metadata_document_supported",
        "authorization_response_iss_parameter_supported",
    )
)  # fmt: skip
_ASK = gettext_lazy("ask its operator")
_PORTS = {"http": 80, "https": 443}
_EARLY_SECONDS = 60.0
"""A token is refreshed this many seconds before it expires, or at half of its lifetime if that is earlier."""
_LONGEST_LIFE = 10 * 365 * 86_400
_CODE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e ]{1,60}")
"""Error code (RFC 6749 5.2)."""
_LONGEST_QUOTE = 200
_LATER = frozenset(("temporarily_unavailable", "server_error", "slow_down"))


@dataclass(frozen=True, slots=True)
class Challenge:
    """Challenge of one response. `metadata` is the URL of the resource metadata, empty if missing. `scope` is the
    requested scope, None if missing. `bearer` is True if the server wants a token.
    """

    metadata: str = ""
    scope: str | None = None
    bearer: bool = False
    wider: bool = False
    """True if the token is valid but lacks scope."""

    @classmethod
    def from_response(cls, response: httpx2.Response) -> Challenge:
        """Return the challenge of a rejection."""
        header = response.headers.get("www-authenticate", "")
        return cls(
            extract_resource_metadata_from_www_auth(response) or "",
            extract_scope_from_www_auth(response),
            header.lower().startswith("bearer"),
            response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope",
        )


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """Authorization server of an MCP server. `resource` is the audience of tokens (RFC 8707). `scopes` are the
    supported ones, None if not listed.
    """

    resource: str
    metadata: OAuthMetadata
    described: ProtectedResourceMetadata | None

    @property
    def endpoints(self) -> Mapping[str, Any]:
        """Metadata that later steps need."""
        return self.metadata.model_dump(mode="json", exclude_none=True, include=set(_KEPT))


async def discover(url: str, challenge: Challenge, auth_server: AuthServerClient, issuer: str = "") -> DiscoveredServer:
    """Discover the authorization server of the server at `url`. `issuer` is what it calls itself, if that is set.
    Raises ServerTrouble.
    """
    server = None
    try:
        described = await _resource_metadata(url, challenge, auth_server)
        resource = resource_url_from_server_url(url)
        if described is not None:
            wanted, resource = resource, str(described.resource)
            if not check_resource_allowed(requested_resource=wanted, configured_resource=resource):
                cause = gettext_lazy(
                    "The server describes itself as another one, {resource}, so a token for it would be for that one.",
                    resource=resource,
                )
                raise ServerTrouble(cause, _ASK)
            server = str(described.authorization_servers[0])
        return DiscoveredServer(resource, await _server_metadata(server, url, auth_server, issuer), described)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ServerTrouble(gettext_lazy("The server names an address that is none."), _ASK) from error


def check_proof(metadata: OAuthMetadata) -> None:
    """Check the support of PKCE, without which a stolen code is enough to get a token (MCP specification
    2026-07-28, basic/authorization: a client must refuse). Raises ServerTrouble.
    """
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise ServerTrouble(
            gettext_lazy(
                "The authorization server {issuer} does not say that it supports PKCE with S256, without which "
                "nobody may be sent there.",
                issuer=metadata.issuer,
            ),
            gettext_lazy("its operator has to switch PKCE on and list it in code_challenge_methods_supported"),
        )


def wanted_scope(
    discovered: DiscoveredServer, challenge: Challenge, terms: OAuthTerms, granted: str, grants: tuple[str, ...]
) -> str:
    """Return the scope to request: that of the server's challenge, else of its metadata, else of an admin, else
    empty. A wider challenge adds to the scope that was granted before.
    """
    scope = get_client_metadata_scopes(challenge.scope, discovered.described)
    if scope is None:
        scope = terms.scope or None
    if challenge.wider:
        scope = union_scopes(granted, scope)
    return get_client_metadata_scopes(scope, None, discovered.metadata, list(grants)) or "" if scope else ""


async def _resource_metadata(
    url: str, challenge: Challenge, auth_server: AuthServerClient
) -> ProtectedResourceMetadata | None:
    """Fetch the server's resource metadata. Return None if there is none, as on servers of early 2025."""
    failed = 0
    for metadata_url in build_protected_resource_metadata_discovery_urls(challenge.metadata or None, url):
        if _origin(metadata_url) != _origin(url):
            validate_url(metadata_url, gettext_lazy("address of the server's metadata"))
        response = await auth_server.send(create_oauth_metadata_request(metadata_url))
        if response.status_code >= 500 or response.status_code == 429:
            failed = response.status_code
        if (described := await handle_protected_resource_response(response)) is not None:
            return described
    if failed:
        raise ServerTrouble(
            gettext_lazy("The server does not say who signs people in to it: {status}.", status=failed),
            gettext_lazy("try again later"),
        )
    return None


async def _server_metadata(server: str | None, url: str, auth_server: AuthServerClient, issuer: str) -> OAuthMetadata:
    """Fetch the metadata of the authorization server, by default that of the server's own host. If `issuer` is
    set, no other one counts, and it is asked last.
    """
    expected = issuer or server or _origin(url)
    places = build_oauth_authorization_server_metadata_discovery_urls(server, url)
    if issuer:
        places += build_oauth_authorization_server_metadata_discovery_urls(issuer, url)
    other = ""
    for metadata_url in dict.fromkeys(places):
        if _origin(metadata_url) != _origin(url):
            validate_url(metadata_url, gettext_lazy("address of the authorization server"))
        usual, metadata = await handle_auth_metadata_response(
            await auth_server.send(create_oauth_metadata_request(metadata_url))
        )
        if not usual:
            break
        if metadata is None:
            continue
        if not issuers_match(str(metadata.issuer), expected):
            other = str(metadata.issuer)
            if issuer:
                continue
            break
        return check_metadata(metadata, url)
    if other:
        raise ServerTrouble(
            gettext_lazy(
                "The authorization server {expected} says that it is another one, {issuer}.",
                expected=expected,
                issuer=other,
            ),
            gettext_lazy("if you know that both belong together, set its issuer to {issuer}", issuer=other),
        )
    raise ServerTrouble(
        gettext_lazy("{expected} does not say how to sign in there: it has no metadata for OAuth.", expected=expected),
        _ASK,
    )


def check_metadata(metadata: OAuthMetadata, url: str) -> OAuthMetadata:
    """Check the endpoints of the authorization server of `url`. Raises ServerTrouble."""
    validate_url(str(metadata.authorization_endpoint), gettext_lazy("authorization endpoint"))
    if _is_here(str(metadata.authorization_endpoint)) and not _is_here(url):
        # Harmless to the bot, but the user's browser would open it.
        raise ServerTrouble(gettext_lazy("The authorization endpoint is on the user's own machine."), _ASK)
    validate_url(str(metadata.token_endpoint), gettext_lazy("token endpoint"))
    if metadata.registration_endpoint is not None:
        validate_url(str(metadata.registration_endpoint), gettext_lazy("registration endpoint"))
    return metadata


def _is_here(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def check_party(metadata: OAuthMetadata, *, registered_by_hand: bool) -> None:
    """Check that the endpoints of an authorization server belong to its issuer, so that metadata cannot redirect a
    sign-in. A client that an admin registered by hand may use back-channel endpoints of another domain, because
    some services need that. Raises ServerTrouble.
    """
    endpoints: list[tuple[str, object]] = [(gettext_lazy("authorization endpoint"), metadata.authorization_endpoint)]
    if not registered_by_hand:
        endpoints += [
            (gettext_lazy("token endpoint"), metadata.token_endpoint),
            (gettext_lazy("registration endpoint"), metadata.registration_endpoint),
            (gettext_lazy("revocation endpoint"), metadata.revocation_endpoint),
        ]
    for what, endpoint in endpoints:
        if endpoint is not None and not is_one_party(str(metadata.issuer), str(endpoint)):
            elsewhere = urlsplit(str(endpoint)).hostname
            raise ServerTrouble(
                gettext_lazy(
                    "The authorization server {issuer} has its {endpoint} at {address}, which is not its own "
                    "domain, so the sign-in could reach another party.",
                    issuer=metadata.issuer,
                    endpoint=what,
                    address=elsewhere,
                ),
                gettext_lazy("its operator has to serve both from one domain")
                if what == "authorization endpoint"
                else gettext_lazy(
                    "if you know that both belong together, register the bot there by hand and set the server's "
                    "client_id"
                ),
            )


def is_one_party(url: str, other: str) -> bool:
    """Return True if both addresses have one origin or one registrable domain. IP addresses and names without a domain,
    such as `localhost`, have none.
    """
    if _effective_origin(url) == _effective_origin(other):
        return True
    domain = _registrable_domain(url)
    return bool(domain) and domain == _registrable_domain(other)


def _effective_origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    # The names of this machine are one.
    return parts.scheme, "localhost" if _is_here(url) else parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _registrable_domain(url: str) -> str:
    host = (urlsplit(url).hostname or "").rstrip(".")
    return "" if parse_ip(host) is not None else _suffixes().privatesuffix(host) or ""


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - reads its list, which takes a moment

    return PublicSuffixList()


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


async def register(
    metadata: OAuthMetadata,
    auth_server: AuthServerClient,
    *,
    identity: ClientIdentity,
    terms: OAuthTerms,
    known: Registration | None,
    scope: str,
    now: float,
) -> Registration:
    """Return the bot's registration at this authorization server. `known` is the previous one, `now` in epoch seconds.
    Raises ServerTrouble.
    """
    if terms.client_id:
        return manual_registration(metadata, terms, known)
    # A registration belongs to one authorization server (MCP specification 2026-07-28).
    if (
        known is not None
        and issuers_match(known.issuer, str(metadata.issuer))
        and known.redirect_uri == identity.redirect_uri
        and (known.expires_at is None or now < known.expires_at)
    ):
        return known
    if is_valid_client_metadata_url(identity.metadata_url) and should_use_client_metadata_url(
        metadata, identity.metadata_url
    ):
        return Registration(str(metadata.issuer), identity.metadata_url, redirect_uri=identity.redirect_uri)
    by_hand = gettext_lazy(
        "register an application there by hand, with the redirect address {redirect_uri}, and set "
        "the server's client_id to what it is given, and its secret if it is given one",
        redirect_uri=identity.redirect_uri,
    )
    if metadata.registration_endpoint is None:
        raise ServerTrouble(
            gettext_lazy(
                "The authorization server {issuer} does not allow the bot to register itself.",
                issuer=metadata.issuer,
            ),
            by_hand,
        )
    return await _register_dynamically(metadata, identity.redirect_uri, scope, auth_server, by_hand)


async def _register_dynamically(
    metadata: OAuthMetadata, redirect_uri: str, scope: str, auth_server: AuthServerClient, by_hand: str
) -> Registration:
    """Register by RFC 7591. `by_hand` is the fix if the server refuses."""
    wanted = _preferred(metadata, (*_WITH_SECRET, NONE))
    described = OAuthClientMetadata(
        client_name=NAME,
        redirect_uris=[AnyUrl(redirect_uri)],
        grant_types=list(GRANTS),
        response_types=["code"],
        token_endpoint_auth_method=wanted,
        application_type="web" if urlsplit(redirect_uri).scheme == "https" else "native",
        scope=scope or None,
    )
    endpoint = validate_url(str(metadata.registration_endpoint), gettext_lazy("registration endpoint"))
    request = create_client_registration_request(metadata, described, endpoint)
    try:
        given = await handle_registration_response(await auth_server.send(request))
    except OAuthRegistrationError as error:
        cause = gettext_lazy("The authorization server {issuer} does not register the bot.", issuer=metadata.issuer)
        raise ServerTrouble(cause, by_hand) from error
    expires = given.client_secret_expires_at
    return Registration(
        str(metadata.issuer),
        given.client_id,
        given.client_secret or "",
        _auth_method(given, wanted),
        float(min(expires, _END_OF_TIME)) if expires else None,
        redirect_uri,
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
    method = _preferred(metadata, _WITH_SECRET) if terms.client_secret else NONE
    return Registration(str(metadata.issuer), terms.client_id, terms.client_secret, method)


def _auth_method(given: OAuthClientInformationFull, wanted: str) -> str:
    """Return the authentication method. The server may choose another than requested (RFC 7591 3.2.1)."""
    assumed = (wanted if wanted in _WITH_SECRET else BASIC) if given.client_secret else NONE
    method = given.token_endpoint_auth_method or assumed
    if method not in (*_WITH_SECRET, NONE) or (method in _WITH_SECRET and not given.client_secret):
        reason = gettext_lazy("it wants a secret and has given none")
        if method not in _WITH_SECRET:
            reason = gettext_lazy("it wants to be shown who the bot is by {method}", method=f"{method[:40]!r}")
        raise ServerTrouble(
            gettext_lazy(
                "The authorization server has registered the bot in an unusable way: {reason}.",
                reason=reason,
            ),
            gettext_lazy(
                "register an application there by hand, and give its id and secret with --client-id and --secret"
            ),
        )
    return method


def _preferred(metadata: OAuthMetadata, wanted: Sequence[Method]) -> Method:
    """Return the first supported method. RFC 8414 2: if none is listed, the default is client_secret_basic."""
    supported = metadata.token_endpoint_auth_methods_supported or ()
    return next((method for method in wanted if method in supported), BASIC)


async def revoke(sign_in: SignIn, auth_server: AuthServerClient) -> None:
    """Revoke the tokens if the server supports that. Raises ServerTrouble."""
    endpoint = sign_in.endpoints.get("revocation_endpoint")
    token, kind = (sign_in.refresh_token, "refresh_token") if sign_in.refresh_token else (sign_in.access_token, "")
    if not endpoint or not token:
        return
    form = {"token": token, **({"token_type_hint": kind} if kind else {})}
    await auth_server.send(
        token_request(validate_url(str(endpoint), gettext_lazy("revocation endpoint")), form, sign_in.registration)
    )


async def request_tokens(sign_in: SignIn, form: Mapping[str, str], auth_server: AuthServerClient, now: float) -> SignIn:
    """Request tokens with the form of a grant. Return the sign-in with the new token. Fields missing in the response
    stay (RFC 6749 5.1, 6). Raises ServerTrouble.
    """
    endpoint = validate_url(str(sign_in.endpoints["token_endpoint"]), gettext_lazy("token endpoint"))
    response = await auth_server.send(
        token_request(endpoint, {**form, "resource": sign_in.resource}, sign_in.registration)
    )
    token = _parse_tokens(response, sign_in.registration.issuer)
    life = None if token.expires_in is None else float(min(max(token.expires_in, 0), _LONGEST_LIFE))
    return replace(
        sign_in,
        access_token=token.access_token,
        refresh_token=token.refresh_token or sign_in.refresh_token,
        scope=sign_in.scope if token.scope is None else token.scope,
        expires_at=None if life is None else now + life,
        renew_at=None if life is None else now + max(life - _EARLY_SECONDS, life / 2),
    )


def token_request(endpoint: str, form: Mapping[str, str], registration: Registration) -> httpx2.Request:
    """Return a request with the client's authentication (RFC 6749 2.3.1)."""
    name, secret = registration.client_id, registration.client_secret
    if registration.method == BASIC and secret:
        pair = base64.b64encode(f"{quote(name, safe='')}:{quote(secret, safe='')}".encode()).decode("ascii")
        return httpx2.Request("POST", endpoint, data=dict(form), headers={"authorization": f"Basic {pair}"})
    credentials = {"client_id": name, **({"client_secret": secret} if registration.method == POST and secret else {})}
    return httpx2.Request("POST", endpoint, data={**form, **credentials})


def token_fields(response: httpx2.Response, issuer: str) -> Mapping[str, Any]:
    """Return the fields of a response to a token request. Raises ServerTrouble."""
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
    return {key: value for key, value in body.items() if value is not None}


def _parse_tokens(response: httpx2.Response, issuer: str) -> OAuthToken:
    fields = dict(token_fields(response, issuer))
    try:
        if str(fields.get("token_type", "")).strip().lower() not in _BOUND_TYPES:
            # Some services call a bearer's token after whom it is for, such as `user`.
            fields["token_type"] = "Bearer"  # noqa: S105 - a name
        if isinstance(scopes := fields.get("scope"), list):
            fields["scope"] = " ".join(map(str, scopes))
        life = fields.pop("expires_in", None)
        with suppress(TypeError, ValueError, OverflowError):  # A lifetime that cannot be read is like a missing one.
            fields["expires_in"] = int(float(life))
        token = OAuthToken.model_validate(fields)
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
