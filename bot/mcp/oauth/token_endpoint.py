"""Token requests: authorization code, refresh token and client credentials, and revocation (RFC 7009)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

import httpx2
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from bot.domain.characters import visible
from bot.domain.sign_ins import PendingSignIn, Registration, SignIn
from bot.errors import ServerTrouble
from bot.mcp.oauth.http import AuthServerClient, validate_url
from bot.mcp.oauth.registration import BASIC, POST

_EARLY_SECONDS = 60.0
"""A token is refreshed this many seconds before it expires, or at half of its lifetime if that is earlier."""
_LONGEST_LIFE = 10 * 365 * 86_400
_CODE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e ]{1,60}")
"""Error code (RFC 6749 5.2)."""
_LONGEST_SAYING = 200
_LATER = frozenset(("temporarily_unavailable", "server_error", "slow_down"))


class TokenRequestRejected(ServerTrouble):
    """The authorization server rejects the request for good. `error` is its error code."""

    def __init__(self, cause: str, fix: str, error: str) -> None:
        super().__init__(cause, fix)
        self.error = error

    @property
    def is_unknown_client(self) -> bool:
        """True if the client is unknown."""
        return self.error in ("invalid_client", "unauthorized_client")


async def exchange_code(under_way: PendingSignIn, code: str, ask: AuthServerClient, now: float) -> SignIn:
    """Exchange a code. Return the sign-in with its tokens. Raises ServerTrouble."""
    proof = {"redirect_uri": under_way.redirect_uri, "code_verifier": under_way.verifier}
    form = {"grant_type": "authorization_code", "code": code, **proof}
    return _with_token(under_way.sign_in, await _asked(under_way.sign_in, form, ask), now)


async def exchange_refresh_token(sign_in: SignIn, ask: AuthServerClient, now: float) -> SignIn:
    """Refresh the tokens. Return the changed sign-in. Raises ServerTrouble."""
    form = {"grant_type": "refresh_token", "refresh_token": sign_in.refresh_token}
    return _with_token(sign_in, await _asked(sign_in, form, ask), now)


async def client_credentials_grant(sign_in: SignIn, ask: AuthServerClient, now: float) -> SignIn:
    """Get a token for the bot itself. Return the changed sign-in. Raises ServerTrouble."""
    form = {"grant_type": "client_credentials"}
    if sign_in.scope:
        form["scope"] = sign_in.scope
    return _with_token(sign_in, await _asked(sign_in, form, ask), now)


async def revoke(sign_in: SignIn, ask: AuthServerClient) -> None:
    """Revoke the tokens if the server supports that. Raises ServerTrouble."""
    endpoint = sign_in.endpoints.get("revocation_endpoint")
    token, kind = (sign_in.refresh_token, "refresh_token") if sign_in.refresh_token else (sign_in.access_token, "")
    if not endpoint or not token:
        return
    form = {"token": token, **({"token_type_hint": kind} if kind else {})}
    await ask.ask(_request(validate_url(str(endpoint), "revocation endpoint"), form, sign_in.registration))


async def _asked(sign_in: SignIn, form: Mapping[str, str], ask: AuthServerClient) -> OAuthToken:
    endpoint = validate_url(str(sign_in.endpoints["token_endpoint"]), "token endpoint")
    answer = await ask.ask(_request(endpoint, {**form, "resource": sign_in.resource}, sign_in.registration))
    return _read(answer, sign_in.registration.issuer)


def _request(endpoint: str, form: Mapping[str, str], registration: Registration) -> httpx2.Request:
    """Return a request with the client's authentication (RFC 6749 2.3.1)."""
    name, secret = registration.client_id, registration.client_secret
    if registration.method == BASIC and secret:
        pair = base64.b64encode(f"{quote(name, safe='')}:{quote(secret, safe='')}".encode()).decode("ascii")
        return httpx2.Request("POST", endpoint, data=dict(form), headers={"authorization": f"Basic {pair}"})
    shown = {"client_id": name, **({"client_secret": secret} if registration.method == POST and secret else {})}
    return httpx2.Request("POST", endpoint, data={**form, **shown})


def _read(answer: httpx2.Response, issuer: str) -> OAuthToken:
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) else {}
    error = body.get("error")
    if isinstance(error, str) and "access_token" not in body and answer.status_code < 500 and error not in _LATER:
        # Some servers send errors with status 200.
        raise _refusal(issuer, error, body.get("error_description"))
    if answer.status_code not in (200, 201):
        raise ServerTrouble(f"{issuer} gave no token: {answer.status_code}.", "try again later")
    try:
        token = OAuthToken.model_validate({key: value for key, value in body.items() if value is not None})
    except ValidationError as unreadable:
        raise ServerTrouble(
            f"{issuer} gave no token that can be used: its answer is not in the form that OAuth wants.",
            "ask the operator of the authorization server",
        ) from unreadable
    if not token.access_token or not _is_token_text(token.access_token):
        raise ServerTrouble(f"{issuer} gave a token that no header can carry.", "ask its operator")
    if not _is_token_text(token.refresh_token or "") or not _is_token_text(token.scope or ""):
        raise ServerTrouble(f"{issuer} gave a token that cannot be sent back as it is.", "ask its operator")
    return token


def _is_token_text(text: str) -> bool:
    """Return True for the characters of tokens and scopes (RFC 6749, A.4, A.12, A.17)."""
    return text.isascii() and text.isprintable()


def _refusal(issuer: str, error: str, description: object) -> TokenRequestRejected:
    error = error if _CODE.fullmatch(error) else "error"
    said = visible(description)[:_LONGEST_SAYING].rstrip(". ") if isinstance(description, str) else ""
    cause = f"{issuer} gave no token: {error}{f' ({said})' if said else ''}."
    return TokenRequestRejected(
        cause, "sign in again; if that does not help, check the server's client_id and secret", error
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
