"""The ASGI application: mounted routes and the middleware around them.

The order is: request middleware, authentication, client limits, body limits, routes. A body is read only after
authentication. `/docs` is a page of this package because browsers must not load scripts from other hosts. Health and
metrics take no token and expose only counts and states. Hooks take requests from platforms and authenticate them
themselves.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Protocol

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

import bot.web.api
from bot import __version__
from bot.domain.health import Health, HealthStatus
from bot.i18n import DEFAULT_LANGUAGE
from bot.ports import TokenStore
from bot.web.authentication import AuthMiddleware, LoginThrottle
from bot.web.limits import (
    LARGEST_BODY,
    READING_SECONDS,
    BodyLimitMiddleware,
    CallerLimits,
    CallerShares,
    CapacityMiddleware,
    ConnectionLimits,
    read_body,
)
from bot.web.pages import HtmlDocument, page
from bot.web.problems import Problem, answer_status
from bot.web.request_middleware import FINISHES, RequestMiddleware
from bot.web.routes import RouteNames, WebDependencies, api_routes

_HOOK_PROBLEMS = {408: "too slow\n", 413: "too large\n"}

# -------------------- hooks of platforms


class HookResponse(Protocol):
    """Response of a hook."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the response."""

    @property
    def body(self) -> str:
        """Body of the response."""


class Hook(Protocol):
    """A handler of POST requests at one path."""

    @property
    def path(self) -> str:
        """Path, with a leading slash."""

    @property
    def largest_body(self) -> int:
        """Longest body in bytes. Longer ones are answered with 413."""

    async def respond(self, headers: Mapping[str, str], body: bytes) -> HookResponse:
        """Authenticate and handle one request. Never raises."""


def hook_route(hook: Hook) -> Route:
    """Return the route of a hook."""

    async def respond(request: Request) -> Response:
        try:
            body = await read_body(request, hook.largest_body, READING_SECONDS)
        except Problem as problem:
            return PlainTextResponse(_HOOK_PROBLEMS.get(problem.status, ""), problem.status)
        # A platform hangs up after its timeout and does not repeat an interaction.
        request.scope["state"][FINISHES] = True
        response = await hook.respond(dict(request.headers), body)
        return Response(response.body, response.status, dict(response.headers))

    return Route(hook.path, respond, methods=["POST"])


# -------------------- documentation

_METHODS = ("get", "post", "put", "patch", "delete")
_REFERENCE = """<h1>{title}</h1>
<p>Every request carries <code>Authorization: Bearer TOKEN</code>.
The whole description is <a href="/openapi.json">openapi.json</a>.</p>
{groups}
"""


def documentation_routes(app: FastAPI) -> list[BaseRoute]:
    """Return the routes of `/openapi.json` and `/docs` for this application."""

    async def openapi(_request: Request) -> Response:
        return JSONResponse(app.openapi())

    async def docs(_request: Request) -> Response:
        document = reference_page(app.openapi())
        return HTMLResponse(document.html, document.status, dict(document.headers))

    return [Route("/openapi.json", openapi), Route("/docs", docs)]


def reference_page(document: Mapping[str, Any]) -> HtmlDocument:
    """Return an OpenAPI document as a page, grouped by tag."""
    groups: dict[str, list[str]] = {}
    for method, path, operation in _operations(document):
        summary = escape(str(operation.get("summary", "")))
        line = f"<li><code>{method.upper()} {escape(path)}</code> {summary}</li>"
        groups.setdefault((operation.get("tags") or ["others"])[0], []).append(line)
    lists = (
        f'<h2>{escape(name.capitalize())}</h2>\n<ul class="operations">\n{chr(10).join(lines)}\n</ul>'
        for name, lines in groups.items()
    )
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return page(200, "HTTP API", _REFERENCE.format(title=title, groups="\n".join(lists)))


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                yield method, path, operations[method]


# -------------------- health

ALIVE = "/healthz"
READY = ("/readyz", "/health")


def alive_route() -> Route:
    """Return the liveness route. Any response means that the process is alive."""

    async def alive(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Route(ALIVE, alive)


def ready_routes(read_health: Callable[[], Awaitable[Health]]) -> list[Route]:
    """Return the readiness routes. They answer 503 while messages could not arrive or be stored."""

    async def ready(_request: Request) -> Response:
        health = await read_health()
        status = 503 if health.condition is HealthStatus.UNREADY else 200
        return JSONResponse(_health_json(health), status)

    return [Route(path, ready) for path in READY]


def _health_json(health: Health) -> dict[str, object]:
    unwritable = {"cause": f"The database cannot be written: {health.unwritable}.", "fix": health.fix}
    return {
        "status": health.condition.value,
        "version": __version__,
        "database": "down" if not health.database else "unwritable" if health.unwritable else "up",
        **(unwritable if health.unwritable else {}),
        **({"auditCheckpoints": "failing"} if health.checkpoints_fail else {}),
        **({"operatorFiles": "older than on disk"} if health.files_are_older else {}),
        "platforms": {name: listening.value for name, listening in sorted(health.platforms.items())},
        "servers": {
            "total": health.servers.total,
            "connected": health.servers.connected,
            "errors": health.servers.errors,
        },
    }


Page = BaseRoute
"""A route that takes no token, for `application`."""


def application(
    hooks: Sequence[Hook] = (),
    *,
    api: ASGIApp | None = None,
    pages: Sequence[Page] = (),
    limits: ConnectionLimits | None = None,
    language: str = DEFAULT_LANGUAGE,
) -> RequestMiddleware:
    """Return the whole application: `/healthz`, hooks of platforms, `pages` without a token, and the API at all other
    addresses. `limits` are those of the server; `language` is for requests that accept no installed one.
    """
    routes: list[BaseRoute] = [alive_route(), *map(hook_route, hooks), *pages]
    if api is not None:
        routes.append(Mount("", api))
    served_always = {ALIVE, *READY, *(hook.path for hook in hooks)}
    at_work = (limits or ConnectionLimits()).at_work
    return RequestMiddleware(
        CapacityMiddleware(_PlainRoutes(Router(routes, redirect_slashes=False)), served_always, at_work), language
    )


def api_application(
    dependencies: WebDependencies, *, throttle: LoginThrottle | None = None, shares: CallerShares | None = None
) -> ASGIApp:
    """Return the API with its middleware."""
    return add_middleware(
        api_routes(api_routers(dependencies)),
        dependencies.tokens,
        dependencies.admin_token,
        throttle or LoginThrottle(),
        shares=shares,
    )


def add_middleware(
    routes: FastAPI,
    tokens: TokenStore,
    admin_token: str,
    throttle: LoginThrottle,
    *,
    largest: int = LARGEST_BODY,
    seconds: float = READING_SECONDS,
    shares: CallerShares | None = None,
) -> ASGIApp:
    """Return the routes behind authentication, client and body limits: at most `largest` bytes within `seconds`."""
    limited = CallerLimits(BodyLimitMiddleware(RouteNames(routes), largest, seconds), shares or CallerShares())
    return AuthMiddleware(limited, tokens, admin_token, throttle)


def documentation(dependencies: WebDependencies) -> list[Page]:
    """Return `/openapi.json` and `/docs`, which take no token, as pages for `application`."""
    return documentation_routes(api_routes(api_routers(dependencies)))


def api_routers(dependencies: WebDependencies) -> Iterator[APIRouter]:
    """Yield the routers of every module in `bot.web.api`, sorted by module name."""
    for module in pkgutil.iter_modules(bot.web.api.__path__):
        yield importlib.import_module(f"{bot.web.api.__name__}.{module.name}").routes(dependencies)


class _PlainRoutes:
    """Middleware for routes beside the API: answers unknown addresses in the API's error format."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope["app"] = self._router
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            await (await answer_status(request, error))(scope, receive, send)
