"""Discovery of a server's authorization server: RFC 9728, then RFC 8414 or OpenID Connect Discovery.

The MCP library builds the URLs and parses the responses. This module adds checks that the library lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    issuers_match,
    union_scopes,
    validate_metadata_issuer,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from bot.domain.servers import OAuthTerms
from bot.errors import ServerTrouble
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import parse_ip
from bot.mcp.oauth.http import AuthServerClient, is_loopback, validate_url

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


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


_KEPT = frozenset(
    (
        "issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint",
        "scopes_supported", "grant_types_supported", "token_endpoint_auth_methods_supported",
        "code_challenge_methods_supported", "client_id_metadata_document_supported",
        "authorization_response_iss_parameter_supported",
    )
)  # fmt: skip
_ASK = gettext_lazy("ask its operator")


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """Authorization server of an MCP server. `resource` is the audience of tokens (RFC 8707). `scopes` are the
    supported ones, None if not listed.
    """

    resource: str
    metadata: OAuthMetadata
    described: ProtectedResourceMetadata | None

    @property
    def issuer(self) -> str:
        """Issuer identifier of the authorization server."""
        return str(self.metadata.issuer)

    @property
    def endpoints(self) -> Mapping[str, Any]:
        """Metadata that later steps need."""
        return self.metadata.model_dump(mode="json", exclude_none=True, include=set(_KEPT))


async def discover(url: str, challenge: Challenge, auth_server: AuthServerClient) -> DiscoveredServer:
    """Discover the authorization server of the server at `url`. Raises ServerTrouble."""
    try:
        return await _discover_server(url, challenge, auth_server)
    except (ValueError, httpx2.InvalidURL) as error:
        raise ServerTrouble(gettext_lazy("The server names an address that is none."), _ASK) from error


async def _discover_server(url: str, challenge: Challenge, auth_server: AuthServerClient) -> DiscoveredServer:
    described = await _resource_metadata(url, challenge, auth_server)
    resource = resource_url_from_server_url(url)
    server = None
    if described is not None:
        described_resource = str(described.resource)
        if not check_resource_allowed(requested_resource=resource, configured_resource=described_resource):
            raise ServerTrouble(
                gettext_lazy(
                    "The server describes itself as another one, {resource}, so a token for it would be for that one.",
                    resource=described_resource,
                ),
                _ASK,
            )
        resource, server = described_resource, str(described.authorization_servers[0])
    return DiscoveredServer(resource, await _server_metadata(server, url, auth_server), described)


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


async def _server_metadata(server: str | None, url: str, auth_server: AuthServerClient) -> OAuthMetadata:
    """Fetch the metadata of the authorization server, by default that of the server's own host."""
    expected = server or _origin(url)
    for metadata_url in build_oauth_authorization_server_metadata_discovery_urls(server, url):
        if _origin(metadata_url) != _origin(url):
            validate_url(metadata_url, gettext_lazy("address of the authorization server"))
        usual, metadata = await handle_auth_metadata_response(
            await auth_server.send(create_oauth_metadata_request(metadata_url))
        )
        if not usual:
            break
        if metadata is None:
            continue
        if server is None and issuers_match(str(metadata.issuer), expected):
            expected = str(metadata.issuer)
        try:
            validate_metadata_issuer(metadata, expected)
        except OAuthFlowError as error:
            raise ServerTrouble(
                gettext_lazy(
                    "The authorization server {expected} says that it is another one, {issuer}.",
                    expected=expected,
                    issuer=metadata.issuer,
                ),
                _ASK,
            ) from error
        return _check_metadata(metadata, url)
    raise ServerTrouble(
        gettext_lazy("{expected} does not say how to sign in there: it has no metadata for OAuth.", expected=expected),
        _ASK,
    )


def _check_metadata(metadata: OAuthMetadata, url: str) -> OAuthMetadata:
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


_PORTS = {"http": 80, "https": 443}


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
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _registrable_domain(url: str) -> str:
    host = (urlsplit(url).hostname or "").rstrip(".")
    return "" if parse_ip(host) is not None else _suffixes().privatesuffix(host) or ""


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - reads its list, which takes a moment

    return PublicSuffixList()
