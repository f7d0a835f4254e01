"""Authentication by `Authorization: Bearer`.

The middleware rejects every request without a valid token. Failed logins are throttled by address. Routes require a
role (`bot.web.parameters`), and those about a workspace also call `ensure_workspace`.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.domain.api_clients import OPERATOR_NAME, ApiClient, ApiRole
from bot.errors import CountersignError
from bot.i18n import _
from bot.ports import TokenStore
from bot.web.problems import Problem, problem_of_error, to_response

_MOST_ADDRESSES = 10_000


class LoginThrottle:
    """Token bucket per address, in memory: `at_once` failures after a quiet time, and one more every `seconds`. The
    addresses with the oldest failures are dropped first. `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        at_once: int = 10,
        seconds: float = 6.0,
        clock: Callable[[], float] = time.monotonic,
        most: int = _MOST_ADDRESSES,
    ) -> None:
        self._at_once = at_once
        self._seconds = seconds
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def record_failure(self, address: str) -> float:
        """Count a failure. Return 0 if it is within the limit, else the seconds until the next attempt is accepted."""
        now = self._clock()
        tokens, updated_at = self._buckets.pop(address, (self._at_once, now))
        tokens = min(self._at_once, tokens + (now - updated_at) / self._seconds)
        is_within = tokens >= 1
        self._buckets[address] = (tokens - 1 if is_within else tokens, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return 0.0 if is_within else (1 - tokens) * self._seconds


_TOKEN = re.compile(r"cs_[A-Za-z0-9_-]{43}")


def ensure_workspace(caller: ApiClient, workspace: str) -> str:
    """Return the workspace (`slack:T1`, EVERYWHERE) if the token covers it. Raises Problem with 403, which does not
    tell existing workspaces from others.
    """
    if not caller.covers_workspace(workspace):
        raise Problem(
            403, "other_workspace", _("This token is for another workspace."), _("use a token of that workspace")
        )
    return workspace


class TokenCheck:
    """API clients by their tokens. `admin_token` is the operator's own, empty for none."""

    def __init__(self, tokens: TokenStore, admin_token: str) -> None:
        self._tokens = tokens
        self._admin_digest = hashlib.sha256(admin_token.encode()).digest() if admin_token else b""

    @property
    def operator_digest(self) -> str:
        """Digest of the operator's token, which changes with it."""
        return hashlib.sha256(self._admin_digest).hexdigest()

    async def find_client(self, secret: str) -> ApiClient | None:
        """Return the API client of a valid token, None for any other text."""
        if not secret:
            return None
        if hmac.compare_digest(hashlib.sha256(secret.encode()).digest(), self._admin_digest):
            return ApiClient(OPERATOR_NAME, ApiRole.ADMIN)
        token = await self._tokens.find_by_secret(secret) if _TOKEN.fullmatch(secret) else None
        return None if token is None else ApiClient(token.name, token.role, token.workspace, since=token.created_at)


class AuthMiddleware:
    """Middleware that puts the API client into `request.state.caller`, or answers 401 or 429."""

    def __init__(self, app: ASGIApp, check: TokenCheck, throttle: LoginThrottle) -> None:
        self._app = app
        self._check = check
        self._throttle = throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with a problem."""
        state = scope.setdefault("state", {})
        try:
            client = scope.get("client")
            caller = await self._caller(Headers(scope=scope).get("authorization", ""), str(client[0]) if client else "")
            state["caller"] = replace(caller, language=state.get("language"))
        except Problem as problem:
            await to_response(problem, state.get("request_id", ""))(scope, receive, send)
        except CountersignError as error:
            await to_response(problem_of_error(error), state.get("request_id", ""))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _caller(self, header: str, address: str) -> ApiClient:
        """Return the API client of a token. Valid tokens are accepted from throttled addresses too. Raises Problem."""
        scheme, _space, secret = header.partition(" ")
        if scheme.lower() == "bearer":
            client = await self._check.find_client(secret.strip())
            if client is not None:
                return client
        wait = self._throttle.record_failure(address)
        if wait:
            raise Problem(
                429,
                "too_many_failures",
                _("Too many requests without a good token came from this address."),
                _("wait, and use a token that is good"),
                headers={"Retry-After": str(math.ceil(wait))},
            )
        raise unauthorized_problem()


def unauthorized_problem() -> Problem:
    """Return the same problem for missing, wrong and expired tokens, so that guesses reveal no difference."""
    return Problem(
        401,
        "unauthorized",
        _("A valid API token is required."),
        _("send Authorization: Bearer TOKEN; `countersign tokens create` makes one"),
        headers={"WWW-Authenticate": "Bearer"},
    )
