"""The ASGI application: mounted routes and the middleware around them.

The order is: request middleware, authentication, client limits, body limits, routes. A body is read only after
authentication. `/docs` is a page of this package because browsers must not load scripts from other hosts. Health and
metrics take no token and expose only counts and states.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import bot.web.api
from bot import __version__
from bot.domain.health import Health, HealthStatus
from bot.domain.lenient_json import DEEPEST, DuplicateName, exceeds_json_depth, unique_names
from bot.ports import TokenStore
from bot.web.authentication import AuthMiddleware, LoginThrottle
from bot.web.caller_limits import CallerLimits, CallerShares
from bot.web.connection_table import ConnectionLimits
from bot.web.hooks import Hook, hook_route
from bot.web.problems import Problem, answer_status, problem_of_status, to_response
from bot.web.request_middleware import RequestMiddleware
from bot.web.routes import NamedRoutes, WebDependencies, api_routes

# -------------------- body limits

LARGEST_BODY = 1024 * 1024
"""Longest request body in bytes."""
READING_SECONDS = 15.0


class BodyLimitMiddleware:
    """Middleware that reads and checks bodies. `largest` is in bytes; a body must arrive within `seconds`."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY, seconds: float = READING_SECONDS) -> None:
        self._app = app
        self._largest = largest
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its complete body, or answer with a problem."""
        try:
            if "\0" in scope["path"]:
                # No id or name contains a NUL, and PostgreSQL fails on it.
                raise problem_of_status(404)
            body = await self._read(scope, receive)
        except Problem as problem:
            await to_response(problem, scope["state"]["request_id"])(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def next_message() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, next_message, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        body = bytearray()
        more = True
        try:
            async with asyncio.timeout(self._seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise problem_of_status(400)
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._largest:
                        raise Problem(
                            413, "too_large", f"The body is larger than {self._largest} bytes.", "send less at once"
                        )
        except TimeoutError:
            raise problem_of_status(408, {"Connection": "close"}) from None
        if body and not _is_json(Headers(scope=scope).get("content-type", "")):
            raise Problem(415, "not_json", "The body must be JSON.", "send Content-Type: application/json")
        if body and (problem := _unfit(bytes(body))) is not None:
            raise problem
        return bytes(body)


def _unfit(body: bytes) -> Problem | None:
    """Return the error of a body that the framework's parser accepts: UTF-16, NaN, 1e999, half a surrogate pair,
    duplicate members.
    """
    too_deep = Problem(400, "too_deep", f"The body is nested deeper than {DEEPEST} levels.", "send it flatter")
    try:
        read = json.loads(body.decode("utf-8-sig"), object_pairs_hook=unique_names)
        if exceeds_json_depth(read):
            return too_deep
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    except DuplicateName as error:
        return Problem(400, "duplicate_name", f"The body cannot be used: {error}.", "send each name once")
    except UnicodeEncodeError:
        return Problem(400, "not_text", "A text in the body holds half a character.", "send whole characters")
    except RecursionError:
        return too_deep
    except ValueError:
        return Problem(400, "not_json", "The body is not JSON in UTF-8.", "send one JSON object")
    return None


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


# -------------------- capacity


class Capacity:
    """Middleware that answers 503 beyond `most` requests, except at the paths in `served_always`. A request counts
    after its complete body has arrived: until then its connection can be evicted.
    """

    def __init__(self, app: ASGIApp, served_always: Collection[str], most: int) -> None:
        self._app = app
        self._served_always = frozenset(served_always)
        self._most = most
        self._in_flight: set[object] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] in self._served_always:
            await self._app(scope, receive, send)
            return
        if len(self._in_flight) >= self._most:
            await to_response(_busy(), scope["state"]["request_id"])(scope, receive, send)
            return
        place = object()

        async def next_message() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                self._in_flight.add(place)
            return message

        if not _has_body(scope):
            self._in_flight.add(place)
        try:
            await self._app(scope, next_message, send)
        finally:
            self._in_flight.discard(place)


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _busy() -> Problem:
    return Problem(
        503,
        "too_busy",
        "Too many requests are being served.",
        "try again in a moment",
        headers={"Retry-After": "5"},
    )


# -------------------- documentation

_METHODS = ("get", "post", "put", "patch", "delete")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1>
<p>Every request carries <code>Authorization: Bearer TOKEN</code>.
The whole description is <a href="/openapi.json">openapi.json</a>.</p>
{groups}
</body></html>
"""


def documentation_routes(app: FastAPI) -> list[BaseRoute]:
    """Return the routes of `/openapi.json` and `/docs` for this application."""

    async def openapi(_request: Request) -> Response:
        return JSONResponse(app.openapi())

    async def docs(_request: Request) -> Response:
        return HTMLResponse(page(app.openapi()))

    return [Route("/openapi.json", openapi), Route("/docs", docs)]


def page(document: Mapping[str, Any]) -> str:
    """Return an OpenAPI document as an HTML page, grouped by tag."""
    groups: dict[str, list[str]] = {}
    for method, path, operation in _operations(document):
        said = escape(str(operation.get("summary", "")))
        line = f"<li><code>{method.upper()} {escape(path)}</code> {said}</li>"
        groups.setdefault((operation.get("tags") or ["others"])[0], []).append(line)
    lists = (f"<h2>{escape(name)}</h2>\n<ul>\n{chr(10).join(lines)}\n</ul>" for name, lines in groups.items())
    info = document["info"]
    return _PAGE.format(title=escape(f"{info['title']} {info['version']}"), groups="\n".join(lists))


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


def ready_routes(look: Callable[[], Awaitable[Health]]) -> list[Route]:
    """Return the readiness routes. They answer 503 while messages could not arrive or be stored."""

    async def ready(_request: Request) -> Response:
        health = await look()
        status = 503 if health.condition is HealthStatus.UNREADY else 200
        return JSONResponse(_told(health), status)

    return [Route(path, ready) for path in READY]


def _told(health: Health) -> dict[str, object]:
    unwritable = {"cause": f"The database cannot be written: {health.unwritable}.", "fix": health.fix}
    return {
        "status": health.condition.value,
        "version": __version__,
        "database": "down" if not health.database else "unwritable" if health.unwritable else "up",
        **(unwritable if health.unwritable else {}),
        **({"auditCheckpoints": "failing"} if health.checkpoints_fail else {}),
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
) -> RequestMiddleware:
    """Return the whole application: `/healthz`, hooks of platforms, `pages` without a token, and the API at all other
    addresses. `limits` are those of the server.
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
    """Return the API with its middleware."""
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
    """Return the routes behind authentication, client and body limits: at most `largest` bytes within `seconds`."""
    limited = CallerLimits(BodyLimitMiddleware(NamedRoutes(routes), largest, seconds), shares or CallerShares())
    return AuthMiddleware(limited, tokens, admin_token, attempts)


def documentation(parts: WebDependencies) -> list[Page]:
    """Return `/openapi.json` and `/docs`, which take no token, as pages for `application`."""
    return documentation_routes(api_routes(api_routers(parts)))


def api_routers(parts: WebDependencies) -> Iterator[APIRouter]:
    """Yield the routers of every module in `bot.web.api`, sorted by module name."""
    for module in pkgutil.iter_modules(bot.web.api.__path__):
        yield importlib.import_module(f"{bot.web.api.__name__}.{module.name}").routes(parts)


class _Plain:
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
