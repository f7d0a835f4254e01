"""The routes of the API as one application of the framework: what each may answer, what it is called, and what is said
where none takes a request. Called by `bot.web.application`; knows no subject.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.params import Depends
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from bot import __version__
from bot.web.problems import HANDLERS, ErrorAnswer, Handler, answer_status, rejection_response

# -------------------- route suggestions
# Addresses that look like one that is none, for whoever has mistyped it. Called by `routes`, for callers that the
# gate has let in: nobody else learns what there is.
#
# What is named is written as the routes are, `/api/responses/{responseId}`: nothing that was sent is repeated.

_MOST = 3
_LONGEST = 200
_LEAST, _NO_WORSE = 0.6, 0.1
"""How like an address has to be, and how much less than the likeliest."""
_PARAMETER, _NAMED = re.compile(r"\{(\w+)(?::\w+)?\}"), r"{\1}"


@dataclass(frozen=True, slots=True)
class Address:
    """A route as callers write it: what a router in a router has for a path is only its own."""

    path: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


def closest_routes(method: str, path: str, addresses: Iterable[Address]) -> Sequence[str]:
    """At most three addresses that look most like this path and about as much as each other, each behind its method:
    those that take the method, or any if none of them does.
    """
    wanted = "GET" if method == "HEAD" else method
    every = [(each, _likeness(path.lower()[:_LONGEST], each.path)) for each in addresses]
    close = sorted((found for found in every if found[1] >= _LEAST), key=lambda found: -found[1])
    close = [found for found in close if wanted in found[0].methods] or close
    told = (
        f"{one} {_PARAMETER.sub(_NAMED, each.path)}"
        for each, likeness in close
        for one in ([wanted] if wanted in each.methods else sorted(each.methods))
        if likeness >= close[0][1] - _NO_WORSE
    )
    return tuple(dict.fromkeys(told))[:_MOST]


def _likeness(given: str, path: str) -> float:
    """How like the two are, from 0 to 1, whatever stands for the route's parameters."""
    parts = given.split("/")
    filled = "/".join(
        parts[place] if _PARAMETER.fullmatch(part) and place < len(parts) and parts[place] else part
        for place, part in enumerate(path.split("/"))
    )
    return difflib.SequenceMatcher(None, filled.lower(), given).ratio()


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
"""What every route may answer beside its own."""
_SCHEMA = "#/components/schemas/{model}"
_ERROR = {"application/json": {"schema": {"$ref": _SCHEMA.format(model=ErrorAnswer.__name__)}}}
"""What the body of each of them is."""


def api_router(prefix: str = "", *, tags: Iterable[str] = (), dependencies: Sequence[Depends] = ()) -> APIRouter:
    """A router to put routes on. Its routes are whole, so that an application takes them as they are: to include a
    router would be to make each of its routes a second time, and to analyse every parameter again.
    """
    return APIRouter(
        prefix=prefix,
        tags=[*tags],
        dependencies=dependencies,
        responses={status: {"description": said, "content": _ERROR} for status, said in _ERRORS.items()},
        generate_unique_id_function=_operation,
    )


def api_routes(routers: Iterable[APIRouter]) -> FastAPI:
    """The routes alone, with what they say when something is wrong."""
    app = _Described(
        title="Countersign",
        version=__version__,
        summary="An assistant that works through MCP servers and acts only on the right person's signature.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    for router in routers:
        app.router.routes.extend(router.routes)
    app.add_exception_handler(HTTPException, _refusing([*_addresses(app).values()]))
    return app


def _operation(route: APIRoute) -> str:
    """The id by which generated clients know a route: it stays while its subject and its function keep their names."""
    return "_".join((*map(str, route.tags[:1]), route.name))


class _Described(FastAPI):
    """Knows what an error looks like. Were it the framework's to describe, it would have the type of the route's
    answer, which may be a stream, and every route would prepare anew how each of its errors is written.
    """

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        document = super().openapi()
        error = ErrorAnswer.model_json_schema(ref_template=_SCHEMA)
        known = {**document["components"]["schemas"], **error.pop("$defs"), ErrorAnswer.__name__: error}
        document["components"]["schemas"] = dict(sorted(known.items()))
        return document


def _addresses(app: FastAPI) -> Mapping[int, Address]:
    """Every route's, by the identity of the route."""
    return {
        id(each.original_route): Address(each.path, compile_path(each.path)[0], frozenset(each.methods or ()))
        for each in iter_route_contexts(app.routes)
        if each.path is not None
    }


class NamedRoutes:
    """The routes, noting in a request's state which of them took it, as it is written."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._addresses = _addresses(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self._app(scope, receive, send)
        finally:
            found = self._addresses.get(id(scope.get("route")))
            scope["state"]["route"] = found.path if found is not None else None


def _refusing(addresses: Sequence[Address]) -> Handler:
    """Answers what the framework refuses, with what would be taken. An address may have several routes, and `Allow`
    names the methods of all.
    """

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        match error.status_code:
            case 404:
                meant = closest_routes(request.method, request.url.path, addresses)
                return rejection_response(request, 404, f"did you mean {', '.join(meant)}?" if meant else "")
            case 405:
                return _other_method(request, addresses)
            case _:
                return await answer_status(request, error)

    return refuse


def _other_method(request: Request, addresses: Sequence[Address]) -> Response:
    methods = {"OPTIONS"}.union(*(each.methods for each in addresses if each.pattern.match(request.url.path)))
    methods |= {"HEAD"} if "GET" in methods else set()
    allowed = {"Allow": ", ".join(sorted(methods))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=allowed)
    return rejection_response(request, 405, f"use one of {allowed['Allow']}", allowed)
