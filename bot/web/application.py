"""The application: what is mounted where, and what stands around it.

Called by the composition root, which brings the parts. Routes of the API are in `bot.web.api`, one module a subject.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

import bot.web.api
from bot.ports import TokenStore
from bot.web.authentication import AuthMiddleware
from bot.web.body_limits import LARGEST_BODY, READING_SECONDS, BodyLimitMiddleware
from bot.web.caller_limits import CallerLimits, CallerShares
from bot.web.capacity import Capacity
from bot.web.connection_table import ConnectionLimits
from bot.web.dependencies import WebDependencies
from bot.web.documentation import documentation_routes
from bot.web.health import ALIVE, READY, alive_route
from bot.web.hooks import Hook, hook_route
from bot.web.login_throttle import LoginThrottle
from bot.web.problems import answer_status
from bot.web.request_middleware import RequestMiddleware
from bot.web.routes import NamedRoutes, api_routes

Page = BaseRoute
"""An address that takes no token, for `application`."""


def application(
    hooks: Sequence[Hook] = (),
    *,
    api: ASGIApp | None = None,
    pages: Sequence[Page] = (),
    limits: ConnectionLimits | None = None,
) -> RequestMiddleware:
    """Everything that is served: `/healthz`, hooks that platforms call, `pages` that need no token, and the API for
    all other addresses. `limits` are those of the server.
    """
    routes: list[BaseRoute] = [alive_route(), *map(hook_route, hooks), *pages]
    if api is not None:
        routes.append(Mount("", api))
    served_always = {ALIVE, *READY, *(hook.path for hook in hooks)}
    at_work = (limits or ConnectionLimits()).at_work
    return RequestMiddleware(Capacity(_Plain(Router(routes, redirect_slashes=False)), served_always, at_work))


def api_application(
    parts: WebDependencies, *, attempts: LoginThrottle | None = None, shares: CallerShares | None = None
) -> ASGIApp:
    """The API behind its gate."""
    return add_middleware(
        api_routes(api_routers(parts)), parts.tokens, parts.admin_token, attempts or LoginThrottle(), shares=shares
    )


def add_middleware(
    routes: FastAPI,
    tokens: TokenStore,
    admin_token: str,
    attempts: LoginThrottle,
    *,
    largest: int = LARGEST_BODY,
    seconds: float = READING_SECONDS,
    shares: CallerShares | None = None,
) -> ASGIApp:
    """Routes with everything before them: the gate, the limits of one caller, and what reads the body, of `largest`
    bytes and in `seconds`.
    """
    limited = CallerLimits(BodyLimitMiddleware(NamedRoutes(routes), largest, seconds), shares or CallerShares())
    return AuthMiddleware(limited, tokens, admin_token, attempts)


def documentation(parts: WebDependencies) -> list[Page]:
    """`/openapi.json` and `/docs`, which take no token: pages for `application`."""
    return documentation_routes(api_routes(api_routers(parts)))


def api_routers(parts: WebDependencies) -> Iterator[APIRouter]:
    """The routers of every module in `bot.web.api`, in the order of their names."""
    for module in pkgutil.iter_modules(bot.web.api.__path__):
        yield importlib.import_module(f"{bot.web.api.__name__}.{module.name}").routes(parts)


class _Plain:
    """Answers in the API's shape what no route takes, for routes that stand beside the API."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope["app"] = self._router
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            await (await answer_status(request, error))(scope, receive, send)
