"""Routes of the API as one FastAPI application, with the dependencies, base models and event streams that they share.

The module sets possible errors, operation ids, and suggestions in the responses of unknown routes. Models have names in
camelCase and times as ISO 8601. Streams are server-sent events for EventSource (HTML, "Server-sent events"): comments
at intervals keep proxies from closing an idle one, and a disconnect closes the source of the events.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib
import json
import pkgutil
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

import bot.web.api
from bot import __version__
from bot.admin.command import CommandRejected
from bot.admin.text_format import MOMENT, parse_time
from bot.errors import CountersignError
from bot.i18n import _, use_time_zone
from bot.rendering.turn_events import event_schemas
from bot.web.dependencies import WebDependencies
from bot.web.problems import (
    ErrorAnswer,
    Handler,
    Problem,
    answer_error,
    internal_error,
    invalid_fields,
    rejection_response,
    request_id,
    to_response,
    validation_errors,
)

_ERRORS: Mapping[int | str, str] = {
    401: "No token, or none that is good.",
    403: "The token's role or workspace is another.",
    404: "It does not exist, or not for this token.",
    409: "It is not what it was, or the name is taken.",
    422: "Some fields cannot be used.",
    503: "The database is away for now.",
    "4XX": "The request cannot be taken: its body, its method, or too many failures before it.",
    "5XX": "It could not be done.",
}
"""Errors that every route may return."""
SCHEMA_REFERENCE = "#/components/schemas/{model}"
_ERROR = {"application/json": {"schema": {"$ref": SCHEMA_REFERENCE.format(model=ErrorAnswer.__name__)}}}
"""Schema of their body."""
_MOST_SUGGESTIONS = 3
_LONGEST_PATH = 200
_LEAST_SIMILARITY, _LARGEST_DISTANCE = 0.6, 0.1
"""Least similarity of a suggestion, and its largest distance to the best one."""
_PARAMETER, _PARAMETER_NAME = re.compile(r"\{(\w+)(?::\w+)?\}"), r"{\1}"
MOST_ROWS = 10_000
"""Highest offset in a list."""
HEARTBEAT_SECONDS = 15.0
RETRY_MILLISECONDS = 2_000
"""Reconnect delay for clients in milliseconds."""
_LINE_BREAKS = {ord(character): f"\\u{ord(character):04x}" for character in "\x7f\x85\u2028\u2029"}


class RequestModel(BaseModel):
    """A request body. Unknown fields are rejected."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


def parse_moment(field: str, text: str, now: float) -> float:
    """Parse a time in a request into epoch seconds; without an offset it is in UTC. Raises Problem, which names the
    field.
    """
    try:
        with use_time_zone(UTC):
            return parse_time(text, now)
    except (ValueError, OverflowError):
        raise invalid_fields({field: _("A point in time is {example}.", example=MOMENT)}) from None


def page_offset(page: int, size: int, fix: str) -> int:
    """Return the index of a page's first row. Raises Problem for one behind MOST_ROWS; `fix` is its fix."""
    offset = (page - 1) * size
    if offset + size > MOST_ROWS:
        raise invalid_fields({"page": _("Too far.")}, _("A list ends after {rows} rows.", rows=MOST_ROWS), fix)
    return offset


def api_router(prefix: str = "", *, tags: Iterable[str] = (), dependencies: Sequence[Depends] = ()) -> APIRouter:
    """Return a router with routes that an application includes as is: `include_router` would build and analyze each
    route a second time.
    """
    return APIRouter(
        prefix=prefix,
        tags=[*tags],
        dependencies=dependencies,
        responses={status: {"description": description, "content": _ERROR} for status, description in _ERRORS.items()},
        generate_unique_id_function=_operation_id,
    )


_Method = TypeVar("_Method", bound=Callable[..., Awaitable[object]])
_ROUTE = "countersign_route"
"""Name of what a declaration adds to a method."""


def route(verb: str, path: str, summary: str | None = None, **options: Any) -> Callable[[_Method], _Method]:
    """Declare a method of `Routes` as the handler of a route. `options` are those of FastAPI; the method's name is that
    of the operation.
    """

    def declare(method: _Method) -> _Method:
        setattr(method, _ROUTE, (verb, path, {"summary": summary, **options}))
        return method

    return declare


class Routes:
    """Routes of one subject: the methods that `route` declares."""

    def mount(
        self, prefix: str, tag: str, scope: Callable[..., Awaitable[object]] | None = None, name: str = ""
    ) -> APIRouter:
        """Return a router below `prefix`. Each route depends on `scope`; `name` begins the names of operations."""
        router = api_router(prefix, tags=[tag], dependencies=[Depends(scope)] if scope is not None else ())
        for method in vars(type(self)).values():
            if hasattr(method, _ROUTE):
                verb, path, options = getattr(method, _ROUTE)
                declare = getattr(router, verb)(path, name=f"{name}{method.__name__}", **options)
                declare(method.__get__(self))
        return router


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Answer a request with invalid parts by one message per field, without values."""
    assert isinstance(error, RequestValidationError)
    body, errors = getattr(request.scope.get("route"), "body_field", None), error.errors()
    if any(detail["type"] == "json_invalid" for detail in errors):
        problem = Problem(400, "not_json", _("The body is not JSON."), _("send one JSON object"))
    else:
        body_type = None if body is None else body.field_info.annotation
        problem = invalid_fields(validation_errors(errors, error.body, body_type))
    return to_response(problem, request_id(request))


async def _answer_failure(request: Request, _error: Exception) -> Response:
    # The outer middleware logs the reason.
    return to_response(internal_error(), request_id(request))


_HANDLERS: Mapping[type[Exception], Handler] = {
    **dict.fromkeys((Problem, CommandRejected, CountersignError, HTTPException), answer_error),
    RequestValidationError: _answer_invalid,
    Exception: _answer_failure,
}


def build_api(dependencies: WebDependencies) -> FastAPI:
    """Return the routes of every module in `bot.web.api`, sorted by module name, and those of the gateway."""
    names = [f"{bot.web.api.__name__}.{module.name}" for module in pkgutil.iter_modules(bot.web.api.__path__)]
    names.append("bot.web.gateway.approvals")
    return api_routes(importlib.import_module(name).routes(dependencies) for name in names)


def api_routes(routers: Iterable[APIRouter]) -> FastAPI:
    """Return the FastAPI application of the routes, with error handlers."""
    app = _DescribedApi(
        title="Countersign",
        version=__version__,
        summary="An assistant that works through MCP servers and acts only on the right person's signature.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    for router in routers:
        app.router.routes.extend(router.routes)
    app.add_exception_handler(HTTPException, _not_found_handler([*_route_templates(app).values()]))
    return app


def _operation_id(route: APIRoute) -> str:
    return "_".join((*map(str, route.tags[:1]), route.name))


class _DescribedApi(FastAPI):
    """FastAPI with the schemas of errors and events. Declaring errors per route would give them the route's response
    class, which may be a stream.
    """

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, built once."""
        document = super().openapi()
        error = ErrorAnswer.model_json_schema(ref_template=SCHEMA_REFERENCE)
        _, of_events = event_schemas(SCHEMA_REFERENCE)
        schemas = {**of_events, **document["components"]["schemas"], **error.pop("$defs"), ErrorAnswer.__name__: error}
        document["components"]["schemas"] = dict(sorted(schemas.items()))
        return document


def _route_templates(app: FastAPI) -> Mapping[int, RouteTemplate]:
    """Return every route's template by the identity of the route."""
    return {
        id(route.original_route): RouteTemplate(
            route.path,
            compile_path(route.path)[0],
            frozenset(route.methods or ()),
        )
        for route in iter_route_contexts(app.routes)
        if route.path is not None
    }


class RouteNames:
    """The routes. The template of the matched route is put into the request's state."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._templates = _route_templates(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self.app(scope, receive, send)
        finally:
            template = self._templates.get(id(scope.get("route")))
            scope["state"]["route"] = template.path if template is not None else None


# -------------------- suggestions for unknown routes
# Suggestions are route templates such as `/api/responses/{responseId}`, and only for authenticated clients.


@dataclass(frozen=True, slots=True)
class RouteTemplate:
    """A full route template with its methods."""

    path: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


def closest_routes(method: str, path: str, templates: Iterable[RouteTemplate]) -> Sequence[str]:
    """Return at most three routes that are most similar to this path, each with its method: those of the method, or any
    if there are none.
    """
    wanted = "GET" if method == "HEAD" else method
    candidates = [(template, _similarity(path.lower()[:_LONGEST_PATH], template.path)) for template in templates]
    close = sorted(
        (candidate for candidate in candidates if candidate[1] >= _LEAST_SIMILARITY),
        key=lambda candidate: -candidate[1],
    )
    close = [candidate for candidate in close if wanted in candidate[0].methods] or close
    matches = (
        f"{offered} {_PARAMETER.sub(_PARAMETER_NAME, template.path)}"
        for template, similarity in close
        for offered in ([wanted] if wanted in template.methods else sorted(template.methods))
        if similarity >= close[0][1] - _LARGEST_DISTANCE
    )
    return tuple(dict.fromkeys(matches))[:_MOST_SUGGESTIONS]


def _similarity(given: str, path: str) -> float:
    """Return the similarity of a path to a template from 0 to 1; parameters match any text."""
    parts = given.split("/")
    expected = "/".join(
        parts[index] if _PARAMETER.fullmatch(part) and index < len(parts) and parts[index] else part
        for index, part in enumerate(path.split("/"))
    )
    return difflib.SequenceMatcher(None, expected.lower(), given).ratio()


def _not_found_handler(templates: Sequence[RouteTemplate]) -> Handler:
    """Return a handler of 404 and 405 with suggestions. An address may have several routes, and `Allow` names the
    methods of all.
    """

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        match error.status_code:
            case 404:
                suggestions = closest_routes(request.method, request.url.path, templates)
                fix = _("did you mean {addresses}?", addresses=", ".join(suggestions)) if suggestions else ""
                return rejection_response(request, 404, fix)
            case 405:
                return _wrong_method(request, templates)
            case _:
                return await answer_error(request, error)

    return refuse


def _wrong_method(request: Request, templates: Sequence[RouteTemplate]) -> Response:
    methods = {"OPTIONS"}.union(
        *(template.methods for template in templates if template.pattern.match(request.url.path))
    )
    methods |= {"HEAD"} if "GET" in methods else set()
    allowed = {"Allow": ", ".join(sorted(methods))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allowed)
    return rejection_response(request, 405, _("use one of {methods}", methods=allowed["Allow"]), allowed)


# -------------------- server-sent events


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; `id` comes back as `Last-Event-ID`, empty for none."""

    name: str
    data: Mapping[str, Any]
    id: str = ""

    def encode(self) -> bytes:
        """Return the event in the format of the stream. Its JSON is one line, also for parsers that split lines at
        U+2028 and the like.
        """
        data = json.dumps(self.data, separators=(",", ":"), ensure_ascii=False).translate(_LINE_BREAKS)
        lines = [f"id: {self.id}"] if self.id else []
        lines += [f"event: {self.name}", f"data: {data}"]
        # A tool may have returned half a surrogate pair.
        return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def stream_description(events: Sequence[Mapping[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a stream of these events. Their `data` is JSON."""
    schema = {"oneOf": list(events)}
    return {200: {"content": {"text/event-stream": {"schema": schema}}, "description": "A stream of events."}}


class EventStream(StreamingResponse):
    """Response that sends events until they end. Closes their source in any case."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[ServerEvent, None],
        heartbeat: float = HEARTBEAT_SECONDS,
        # FastAPI reads the status for its document here.
        status_code: int = 200,
    ) -> None:
        self._chunks = _chunks(events, heartbeat)
        super().__init__(self._chunks, status_code, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        """Send all events."""
        async with aclosing(self._chunks):
            await super().stream_response(send)


async def _chunks(events: AsyncGenerator[ServerEvent, None], heartbeat: float) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        next_event: asyncio.Task[ServerEvent | None] | None = None
        try:
            while True:
                next_event = next_event or asyncio.create_task(_next(events), name="next event")
                done, _ = await asyncio.wait({next_event}, timeout=heartbeat)
                if not done:
                    yield b": still here\n\n"
                    continue
                event, next_event = next_event.result(), None
                if event is None:
                    return
                yield event.encode()
        finally:
            if next_event is not None:
                next_event.cancel()
                await asyncio.wait({next_event})


async def _next(events: AsyncIterator[ServerEvent]) -> ServerEvent | None:
    """Return the next event, None after the last."""
    async for event in events:
        return event
    return None
