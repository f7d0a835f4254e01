"""Authorization URL of a sign-in, and the check of the returned issuer.

RFC 6749 4.1 with PKCE (RFC 7636), resource indicators (RFC 8707) and the issuer in the response (RFC 9207).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import get_client_metadata_scopes, union_scopes, validate_authorization_response_iss
from mcp.shared.auth import OAuthMetadata

from bot.domain.servers import OAuthTerms
from bot.domain.sign_ins import SignIn
from bot.errors import ServerTrouble
from bot.mcp.oauth.challenges import Challenge
from bot.mcp.oauth.discovery import DiscoveredServer

_VERIFIER_BYTES = 64
_LONGEST_LINK = 3000
_OURS = frozenset(
    (
        "response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method", "resource",
        "scope", "request", "request_uri",
    )
)  # fmt: skip
"""Query parameters that an authorization endpoint must not contain."""


def new_verifier() -> str:
    """Return a random PKCE verifier of 86 characters (RFC 7636 4.1)."""
    return secrets.token_urlsafe(_VERIFIER_BYTES)


def wanted_scope(
    found: DiscoveredServer, challenge: Challenge, terms: OAuthTerms, granted: str, grants: tuple[str, ...]
) -> str:
    """Return the scope to request: that of the server's challenge, else of its metadata, else of an admin, else
    empty. A wider challenge adds to the scope that was granted before.
    """
    scope = get_client_metadata_scopes(challenge.scope, found.described)
    if scope is None:
        scope = terms.scope or None
    if challenge.wider:
        scope = union_scopes(granted, scope)
    return get_client_metadata_scopes(scope, None, found.metadata, list(grants)) or "" if scope else ""


def address(sign_in: SignIn, state: str, verifier: str, redirect_uri: str) -> str:
    """Return the authorization URL for the user. Raises ServerTrouble."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    query = {
        "response_type": "code",
        "client_id": sign_in.registration.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": sign_in.resource,
    }
    if sign_in.scope:
        query["scope"] = sign_in.scope
    if "offline_access" in sign_in.scope.split():
        # OpenID Connect Core 11: without it the server need not give a refresh token.
        query["prompt"] = "consent"
    endpoint = str(sign_in.endpoints["authorization_endpoint"]).partition("#")[0]
    given = {name for name, _ in parse_qsl(urlsplit(endpoint).query, keep_blank_values=True)}
    if given & _OURS:
        # The server uses one of two equal parameters, perhaps not ours (RFC 6749 3.1).
        raise ServerTrouble(
            f"The authorization endpoint says itself what the bot has to say: {min(given & _OURS)}.",
            "ask the operator of the authorization server",
        )
    link = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
    if len(link) > _LONGEST_LINK:
        raise ServerTrouble(
            f"The address to sign in at would have {len(link)} characters, more than a link in a chat takes.",
            "ask its operator to want fewer scopes",
        )
    return link


def check_issuer(endpoints: Mapping[str, Any], issuer: str | None) -> None:
    """Check that the response comes from the expected issuer (RFC 9207 2.4). Raises ServerTrouble."""
    try:
        validate_authorization_response_iss(issuer, OAuthMetadata.model_validate(endpoints))
    except OAuthFlowError as error:
        raise ServerTrouble(
            "The answer does not come from the authorization server that you were sent to, so it was not used.",
            "sign in again; if this happens again, the connection may be under attack",
        ) from error
