"""The ASGI application: mounted routes and the middleware around them.

The order is: request middleware, authentication, client limits, body limits, routes. A body is read only after
authentication. `/docs` is a page of this package because browsers must not load scripts from other hosts. Health and
metrics take no token and expose only counts and states. Hooks take requests from platforms and authenticate them
themselves.

The request middleware is the outermost: request id, language, log line, response headers, and the end of a request. A
request is cancelled when its client disconnects, unless it has FINISHES in its state. Event streams end on
`RequestMiddleware.shutdown`, so that the process can exit.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot import __version__
from bot.admin.browser_sessions import CONSOLE_PATH
from bot.domain.api_clients import ApiClient
from bot.domain.health import Health, HealthStatus
from bot.i18n import DEFAULT_LANGUAGE, current_language, resolve_language, use_language
from bot.logs import in_context
from bot.ports import TokenStore
from bot.web.authentication import AuthMiddleware, LoginThrottle, TokenCheck
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
from bot.web.pages import page
from bot.web.problems import Problem, answer_error, internal_error, to_response

if TYPE_CHECKING:
    from bot.web.routes import RouteNames

log = logging.getLogger("bot.web.access")

FINISHES = "finishes"
"""Key in the state of a request that is completed even if its client disconnects."""

_LONGEST_HEADER = 1_000
_WEIGHT = re.compile(r"\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*", re.IGNORECASE)
_WITHOUT_LANGUAGE = ("text/plain", "image/", "application/octet-stream")
"""Content types of responses without texts for people."""
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_ROUTE = "-"
_EVENT_STREAM = "text/event-stream"
_PROBE_PATHS = frozenset({"/healthz", "/health", "/readyz", "/metrics"})
"""Paths polled by probes, which are not logged."""
_DISCONNECTED = 499
"""Status in the log for a request with a disconnected client; it is never sent."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every response that does not set them itself, as pages do."""
MCP_PATH, MCP_APPROVALS_PATH = "/mcp", "/mcp/approvals"
ALIVE = "/healthz"
READY = ("/readyz", "/health")
_HOOK_PROBLEMS = {408: "too slow\n", 413: "too large\n"}
_METHODS = ("get", "post", "put", "patch", "delete")
_REFERENCE = """<h1>{title}</h1>
<p>Every request carries <code>Authorization: Bearer TOKEN</code>.
The whole description is <a href="/openapi.json">openapi.json</a>.</p>
{groups}
"""

Page = BaseRoute
"""A route that takes no token, for `application`."""
WebApp = ASGIApp
"""Routes with their own handling of errors."""


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
    routes: list[BaseRoute] = [Route(ALIVE, alive), *map(hook_route, hooks), *pages]
    if api is not None:
        routes.append(Mount("", api))
    served_always = {ALIVE, *READY, *(hook.path for hook in hooks)}
    at_work = (limits or ConnectionLimits()).at_work
    return RequestMiddleware(
        CapacityMiddleware(_PlainRoutes(Router(routes, redirect_slashes=False)), served_always, at_work), language
    )


def api_application(
    routes: ASGIApp,
    tokens: TokenStore,
    admin_token: str,
    *,
    throttle: LoginThrottle | None = None,
    largest: int = LARGEST_BODY,
    seconds: float = READING_SECONDS,
    shares: CallerShares | None = None,
) -> ASGIApp:
    """Return the routes behind authentication, client and body limits: at most `largest` bytes within `seconds`.
    `admin_token` is the operator's own, empty for none.
    """
    limited = CallerLimits(BodyLimitMiddleware(routes, largest, seconds), shares or CallerShares())
    return AuthMiddleware(limited, TokenCheck(tokens, admin_token), throttle or LoginThrottle())


App = TypeVar("App", bound=ASGIApp)


class LazyRoutes(Generic[App]):
    """The routes that `build` makes for the first request, in a thread: to load FastAPI and to analyze every handler
    takes half a second and 15 MB, and many processes are never asked. The console loads Jinja2 so.
    """

    def __init__(self, build: Callable[[], App]) -> None:
        self._build = build
        self._building = asyncio.Lock()
        self._built: App | None = None

    async def built(self) -> App:
        """Return the routes."""
        if self._built is None:
            async with self._building:
                if self._built is None:
                    self._built = await asyncio.to_thread(self._build)
        return self._built

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await (await self.built())(scope, receive, send)

    async def aclose(self: LazyRoutes[Closable]) -> None:
        """Close the routes, if they were built."""
        if self._built is not None:
            await self._built.close()


class Closable(Protocol):
    """Routes with a close."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

    async def close(self) -> None:
        """End all that goes on between requests."""


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
            await (await answer_error(request, error))(scope, receive, send)


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


def console_routes(build: Callable[[], WebApp]) -> list[Page]:
    """Return the routes of the console, which `build` makes for the first request."""
    routes = LazyRoutes(build)
    return [Route(CONSOLE_PATH, routes), Route(f"{CONSOLE_PATH}/{{rest:path}}", routes)]


def gateway_routes(gateway: ASGIApp, others: ASGIApp) -> ASGIApp:
    """Return the MCP endpoints for other agents, and the routes of all other addresses."""
    return Router(
        [Route(MCP_PATH, gateway), Route(MCP_APPROVALS_PATH, gateway), Mount("", others)], redirect_slashes=False
    )


# -------------------- documentation


def documentation_routes(routes: LazyRoutes[RouteNames]) -> list[Page]:
    """Return `/openapi.json` and `/docs` of the API, which take no token, as pages for `application`."""

    async def openapi(_request: Request) -> Response:
        return JSONResponse((await routes.built()).app.openapi())

    async def docs(_request: Request) -> Response:
        return reference_page((await routes.built()).app.openapi())

    return [Route("/openapi.json", openapi), Route("/docs", docs)]


def reference_page(document: Mapping[str, Any]) -> HTMLResponse:
    """Return an OpenAPI document as a page, grouped by tag."""
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in filter(operations.__contains__, _METHODS):
            operation = operations[method]
            summary = escape(str(operation.get("summary", "")))
            line = f"<li><code>{method.upper()} {escape(path)}</code> {summary}</li>"
            groups.setdefault((operation.get("tags") or ["others"])[0], []).append(line)
    lists = (
        f'<h2>{escape(name.capitalize())}</h2>\n<ul class="operations">\n{chr(10).join(lines)}\n</ul>'
        for name, lines in groups.items()
    )
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    return page(200, "HTTP API", _REFERENCE.format(title=title, groups="\n".join(lists)))


# -------------------- health


async def alive(_request: Request) -> Response:
    """Any response means that the process is alive."""
    return PlainTextResponse("ok\n")


def ready_routes(read_health: Callable[[], Awaitable[Health]]) -> list[Route]:
    """Return the readiness routes. They answer 503 while messages could not arrive or be stored."""

    async def ready(_request: Request) -> Response:
        health = await read_health()
        status = 503 if health.condition is HealthStatus.UNREADY else 200
        unwritable = {"cause": f"The database cannot be written: {health.unwritable}.", "fix": health.fix}
        content = {
            "status": health.condition.value,
            "version": __version__,
            "database": "down" if not health.database else "unwritable" if health.unwritable else "up",
            **(unwritable if health.unwritable else {}),
            **({"auditCheckpoints": "failing"} if health.checkpoints_fail else {}),
            **({"operatorFiles": "older than on disk"} if health.files_are_older else {}),
            "platforms": {name: listening.value for name, listening in sorted(health.platforms.items())},
            "servers": {name: getattr(health.servers, name) for name in ("total", "connected", "errors")},
        }
        return JSONResponse(content, status)

    return [Route(path, ready) for path in READY]


# -------------------- request middleware


@dataclass(slots=True)
class _Response:
    """Sent part of one response. `head` is for a HEAD request."""

    send: Send
    request_id: str
    head: bool
    status: int = 0
    streams: bool = False
    ended: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self.request_id
            self.status = message["status"]
            content_type = headers.get("content-type", "")
            if content_type and not content_type.startswith(_WITHOUT_LANGUAGE):
                headers.setdefault("Content-Language", current_language())
                headers.add_vary_header("Accept-Language")
            self.streams = content_type.startswith(_EVENT_STREAM)
            self.started.set()
        elif message["type"] == "http.response.body":
            if self.ended:
                return
            if self.head:
                message = {**message, "body": b""}
            self.ended = not message.get("more_body", False)
        await self.send(message)

    async def close(self) -> None:
        """End a started response."""
        if self.status and not self.ended:
            await self({"type": "http.response.body", "body": b"", "more_body": False})


class RequestMiddleware:
    """Middleware around the whole application. `language` is for requests that accept no installed one."""

    def __init__(self, app: ASGIApp, language: str = DEFAULT_LANGUAGE) -> None:
        self._app = app
        self._language = language
        self._streams: set[asyncio.Task[None]] = set()
        self._shutting_down = False

    def shutdown(self) -> None:
        """End all event streams now, and later ones at once."""
        self._shutting_down = True
        for stream in self._streams:
            stream.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        started_at = time.monotonic()
        headers, head = Headers(scope=scope), scope["method"] == "HEAD"
        given_id = headers.get("x-request-id", "")
        request_id = given_id if _SAFE_ID.fullmatch(given_id) else secrets.token_hex(8)
        language = accepted_language(headers.get("accept-language", ""))
        state = {**scope.get("state", {}), "request_id": request_id, "head": head, "language": language}
        inner: Scope = {**scope, "state": state, **({"method": "GET"} if head else {})}
        response = _Response(send, request_id, head)
        with in_context(request=request_id), use_language(language or self._language):
            try:
                await self._run(inner, receive, response)
            finally:
                _log(inner, response, time.monotonic() - started_at, scope["method"])

    async def _run(self, scope: Scope, receive: Receive, response: _Response) -> None:
        """Run the application while the client is connected."""
        connection = _Connection(receive)

        async def run() -> None:
            await self._app(scope, connection.receive, response)

        work = asyncio.create_task(run(), name="request")
        closed = asyncio.create_task(connection.wait_closed(), name="caller")
        started = asyncio.create_task(response.started.wait(), name="begun")
        try:
            await asyncio.wait({work, closed, started}, return_when=asyncio.FIRST_COMPLETED)
            if response.streams and not work.done():
                self._streams.add(work)
                if self._shutting_down or response.head:
                    work.cancel()
            await asyncio.wait({work, closed}, return_when=asyncio.FIRST_COMPLETED)
            # A client with a complete response may disconnect; cleanup is not cancelled.
            if response.ended or scope["state"].get(FINISHES):
                await asyncio.wait({work})
        finally:
            self._streams.discard(work)
            for task in (work, closed, started):
                task.cancel()
            ended, *_ = await asyncio.gather(work, closed, started, return_exceptions=True)
        if isinstance(ended, Exception):
            log.error("a request failed", exc_info=ended)
            if not response.status:
                await to_response(internal_error(), response.request_id)(scope, receive, response)
        elif not connection.is_closed:
            await response.close()


class _Connection:
    """Incoming messages: pieces of the body, then the disconnect. Only one waiter reads at a time, and shares the
    result.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._body_ended = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def receive(self) -> Message:
        """Return the next piece of the body; after that, wait for the disconnect."""
        if not self._body_ended.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._closed.set()
                self._body_ended.set()
            elif not message.get("more_body", False):
                self._body_ended.set()
            return message
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def wait_closed(self) -> None:
        """Wait for the disconnect. Until the body is complete, its reader receives it."""
        await self._body_ended.wait()
        while not self._closed.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._closed.set()


def accepted_language(header: str) -> str | None:
    """Return the installed language that an Accept-Language header prefers (RFC 9110, section 12.5.4), None if there
    is none.
    """
    accepted: list[tuple[float, str]] = []
    for entry in header[:_LONGEST_HEADER].split(","):
        tag, _semicolon, parameters = entry.partition(";")
        match = _WEIGHT.fullmatch(parameters)
        language, weight = resolve_language(tag.strip()), float(match[1]) if match else 1.0
        if language and weight:
            accepted.append((weight, language))
    return max(accepted, key=lambda entry: entry[0])[1] if accepted else None


def _log(scope: Scope, response: _Response, seconds: float, method: str) -> None:
    """Log one line with the route template, never its values."""
    route = scope["state"].get("route") or getattr(scope.get("route"), "path", "") or _NO_ROUTE
    caller = scope["state"].get("caller")
    name = caller.name if isinstance(caller, ApiClient) else "-"
    level = logging.DEBUG if route in _PROBE_PATHS else logging.INFO
    log.log(level, "%s %s %d %.0f ms caller=%s", method, route, response.status or _DISCONNECTED, seconds * 1000, name)
