"""Who is calling, by the token in `Authorization: Bearer`, and what a route asks of them.

The gate stands before every route of the API and lets nobody in without a token that is good. A route says by the type
of a parameter what it needs: `MemberCaller`, `ApproverCaller` or `AdminCaller`. What is about a workspace goes through
`within` besides.
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

from bot.domain.callers import OPERATOR_NAME, ApiToken, Caller, Role
from bot.errors import CountersignError
from bot.stores import TokenStore
from bot.web.attempts import Attempts
from bot.web.problems import Problem, answered, of_error

_TOKEN = re.compile(r"cs_[A-Za-z0-9_-]{43}")
_bearer = HTTPBearer(
    auto_error=False, scheme_name="token", description="Made with `countersign tokens create`, or ADMIN_API_TOKEN."
)


@dataclass(frozen=True, slots=True)
class Needs:
    """A route's demand, as a dependency: a caller who may do what `role` may."""

    role: Role

    async def __call__(self, request: Request, _header: Annotated[object, Depends(_bearer)]) -> Caller:
        """The caller. Raises Problem: 401 where the gate let nobody in, 403 if the role is too small."""
        caller = getattr(request.state, "caller", None)
        if not isinstance(caller, Caller):
            raise _unknown()
        if not caller.may(self.role):
            raise Problem(
                403,
                "forbidden",
                f"This takes a token with the role {self.role}.",
                "use another token, or have one made with `countersign tokens create`",
            )
        return caller


MemberCaller = Annotated[Caller, Depends(Needs(Role.MEMBER))]
"""Whoever has a token at all."""
ApproverCaller = Annotated[Caller, Depends(Needs(Role.APPROVER))]
"""Whoever may sign."""
AdminCaller = Annotated[Caller, Depends(Needs(Role.ADMIN))]
"""Whoever may administer."""


def within(caller: Caller, home: str) -> str:
    """The workspace (`slack:T1`, EVERYWHERE) that a route was asked for by its name, if the caller has to do with it.
    Raises Problem with 403: the name is the caller's own, nothing is told of what is there.
    """
    if not caller.reaches(home):
        raise Problem(403, "other_workspace", "This token is for another workspace.", "use a token of that workspace")
    return home


class Gate:
    """Stands before the API: every request has a `caller` in its state behind it, or is answered here."""

    def __init__(self, app: ASGIApp, tokens: TokenStore, admin_token: str, attempts: Attempts) -> None:
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
            await answered(problem, state.get("request_id", ""))(scope, receive, send)
        except CountersignError as error:
            await answered(of_error(error), state.get("request_id", ""))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _caller(self, header: str, address: str) -> Caller:
        """Raises Problem. A token that is good is good however often others failed from the same address."""
        scheme, _, given = header.partition(" ")
        given = given.strip()
        if scheme.lower() == "bearer" and given:
            if hmac.compare_digest(hashlib.sha256(given.encode()).digest(), self._admin):
                return Caller(OPERATOR_NAME, Role.ADMIN)
            found = await self._tokens.found(given) if _TOKEN.fullmatch(given) else None
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


def _calling(token: ApiToken) -> Caller:
    return Caller(token.name, token.role, token.workspace)


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
