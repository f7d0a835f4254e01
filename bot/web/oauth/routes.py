"""Routes of the OAuth callback and of the client id metadata document.

Neither takes an API token. The authorization code in the callback's address is a secret until it is used: it never
appears in logs, responses or other addresses.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from bot.commands.oauth_callback import OAuthCallback, SignInCompleted, SignInRejected, UnknownLink
from bot.domain.sign_ins import CALLBACK_ID, CALLBACK_PATH, CLIENT_NAME, CLIENT_PATH
from bot.errors import DatabaseError
from bot.ports import AuthorizationResponse
from bot.web.authentication import LoginThrottle
from bot.web.html import HtmlDocument
from bot.web.oauth import pages as sign_in_pages

log = logging.getLogger(__name__)

_STATE = re.compile(r"[A-Za-z0-9_-]{20,200}")
_LONGEST_CODE = 8_192
_LONGEST = 2_048
_KEPT_SECONDS = 3_600
"""Seconds that clients may cache the client document."""


def pages(coming_back: OAuthCallback, address: str, *, attempts: LoginThrottle | None = None) -> list[Route]:
    """Return the routes. `address` is the public address of the bot; `attempts` throttles unknown states by address."""
    coming = _Callback(coming_back, attempts or LoginThrottle())
    routes = [Route(f"{CALLBACK_PATH}{{callback}}", coming.answer, methods=["GET"])]
    if address.startswith("https://"):
        routes.append(Route(f"{CLIENT_PATH}{{name}}", _ClientPage(address).answer, methods=["GET"]))
    return routes


def client_document(address: str, callback: str) -> Mapping[str, Any]:
    """Return the client metadata document for the authorization server of one server (SEP-991). Its id is its own
    address.
    """
    return {
        "client_id": f"{address}{CLIENT_PATH}{callback}.json",
        "client_name": CLIENT_NAME,
        "client_uri": address,
        "redirect_uris": [f"{address}{CALLBACK_PATH}{callback}"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }


class _ClientPage:
    def __init__(self, address: str) -> None:
        self._address = address

    async def answer(self, request: Request) -> Response:
        """Return the document. Every possible id has one, so that servers cannot be probed."""
        callback = str(request.path_params["name"]).removesuffix(".json")
        if not CALLBACK_ID.fullmatch(callback):
            return Response(status_code=404)
        kept = {"Cache-Control": f"public, max-age={_KEPT_SECONDS}", "X-Content-Type-Options": "nosniff"}
        return JSONResponse(client_document(self._address, callback), headers=kept)


class _Callback:
    def __init__(self, coming_back: OAuthCallback, attempts: LoginThrottle) -> None:
        self._coming_back = coming_back
        self._attempts = attempts

    async def answer(self, request: Request) -> Response:
        """Complete the sign-in. A HEAD request uses nothing up."""
        if request.scope["state"].get("head"):
            return Response(status_code=204, headers=dict(sign_in_pages.unknown().headers))
        try:
            document = await self._taken(request)
        except DatabaseError as error:
            log.warning("sign-in callback failed: %s", error)
            document = sign_in_pages.unavailable_page()
        return HTMLResponse(document.html, document.status, dict(document.headers))

    async def _taken(self, request: Request) -> HtmlDocument:
        state, code = _one(request, "state"), _one(request, "code", _LONGEST_CODE)
        callback = str(request.path_params["callback"])
        if not (_STATE.fullmatch(state) and CALLBACK_ID.fullmatch(callback)):
            return self._unknown(request)
        issuer = _one(request, "iss") if "iss" in request.query_params else None
        outcome = await self._coming_back.back(
            AuthorizationResponse(callback, state, code, issuer, _one(request, "error"))
        )
        match outcome:
            case SignInCompleted():
                return sign_in_pages.signed_in_page(outcome)
            case SignInRejected():
                return sign_in_pages.rejected_page(outcome)
            case UnknownLink():
                return self._unknown(request)

    def _unknown(self, request: Request) -> HtmlDocument:
        wait = self._attempts.failed(request.client.host if request.client else "")
        return sign_in_pages.too_often(wait) if wait else sign_in_pages.unknown()


def _one(request: Request, name: str, longest: int = _LONGEST) -> str:
    """Return a query parameter; empty if it is repeated (RFC 6749, 3.1) or too long."""
    values = request.query_params.getlist(name)
    return values[0] if len(values) == 1 and len(values[0]) <= longest else ""
