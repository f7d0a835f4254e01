"""Who is calling, by the token in `Authorization: Bearer`, and what a route asks of them.

The gate stands before every route of the API and lets nobody in without a token that is good. A route says by the type
of a parameter what it needs: `MemberCaller`, `ApproverCaller` or `AdminCaller`. What is about a workspace goes through
`ensure_workspace` besides.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.domain.api_clients import OPERATOR_NAME, ApiClient, ApiRole, ApiToken
from bot.errors import CountersignError
from bot.ports import TokenStore
from bot.web.login_throttle import LoginThrottle
from bot.web.problems import Problem, problem_of_error, to_response

_TOKEN = re.compile(r"cs_[A-Za-z0-9_-]{43}")
_bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="Made with `countersign tokens create`, or ADMIN_API_TOKEN."
)


@dataclass(frozen=True, slots=True)
class RequireRole:
    """A route's demand, as a dependency: a caller who may do what `role` may."""

    role: ApiRole

    async def __call__(self, request: Request, _header: Annotated[object, Depends(_bearer)]) -> ApiClient:
        """The caller. Raises Problem: 401 where the gate let nobody in, 403 if the role is too small."""
        caller = getattr(request.state, "caller", None)
        if not isinstance(caller, ApiClient):
            raise _unknown()
        if not caller.may(self.role):
            raise Problem(
                403,
                "forbidden",
                f"This takes a token with the role {self.role}.",
                "use another token, or have one made with `countersign tokens create`",
            )
        return caller


MemberCaller = Annotated[ApiClient, Depends(RequireRole(ApiRole.MEMBER))]
"""Whoever has a token at all."""
ApproverCaller = Annotated[ApiClient, Depends(RequireRole(ApiRole.APPROVER))]
"""Whoever may sign."""
AdminCaller = Annotated[ApiClient, Depends(RequireRole(ApiRole.ADMIN))]
"""Whoever may administer."""


def ensure_workspace(caller: ApiClient, home: str) -> str:
    """The workspace (`slack:T1`, EVERYWHERE) that a route was asked for by its name, if the caller has to do with it.
    Raises Problem with 403: the name is the caller's own, nothing is told of what is there.
    """
    if not caller.covers_workspace(home):
        raise Problem(403, "other_workspace", "This token is for another workspace.", "use a token of that workspace")
    return home


class AuthMiddleware:
    """Stands before the API: every request has a `caller` in its state behind it, or is answered here."""

    def __init__(self, app: ASGIApp, tokens: TokenStore, admin_token: str, attempts: LoginThrottle) -> None:
        self._app = app
        self._tokens = tokens
        self._admin = hashlib.sha256(admin_token.encode()).digest() if admin_token else b""
        self._attempts = attempts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or say why not."""
        state = scope.setdefault("state", {})
        try:
            state["caller"] = await self._caller(Headers(scope=scope).get("authorization", ""), _address(scope))
        except Problem as problem:
            await to_response(problem, state.get("request_id", ""))(scope, receive, send)
        except CountersignError as error:
            await to_response(problem_of_error(error), state.get("request_id", ""))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _caller(self, header: str, address: str) -> ApiClient:
        """Raises Problem. A token that is good is good however often others failed from the same address."""
        scheme, _, given = header.partition(" ")
        given = given.strip()
        if scheme.lower() == "bearer" and given:
            if hmac.compare_digest(hashlib.sha256(given.encode()).digest(), self._admin):
                return ApiClient(OPERATOR_NAME, ApiRole.ADMIN)
            found = await self._tokens.find_by_secret(given) if _TOKEN.fullmatch(given) else None
            if found is not None:
                return _calling(found)
        wait = self._attempts.failed(address)
        if wait:
            raise Problem(
                429,
                "too_many_failures",
                "Too many requests without a good token came from this address.",
                "wait, and use a token that is good",
                headers={"Retry-After": str(math.ceil(wait))},
            )
        raise _unknown()


def _calling(token: ApiToken) -> ApiClient:
    return ApiClient(token.name, token.role, token.workspace)


def _unknown() -> Problem:
    """One text for none, a wrong one, and one that is over: whoever guesses learns nothing."""
    return Problem(
        401,
        "unauthorized",
        "This takes a token that is good.",
        "send Authorization: Bearer TOKEN; `countersign tokens create` makes one",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
