"""A server for HTTP APIs: `listPaths` and `getSchema` read an OpenAPI document, `testEndpoint` makes the request."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.fakes.mcp.cases.endpoint import serve_app

TICKET = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "paths": {"/health": {"get": {}}, "/tickets": {"post": {"requestBody": {"$ref": "#/components/schemas/Ticket"}}}},
    "components": {"schemas": {"Ticket": TICKET}},
}
LIMIT = 60.0


@dataclass
class Explorer:
    """Address of the server, and the requests that have reached the API."""

    url: str = ""
    requests: list[tuple[str, str, Any]] = field(default_factory=list)


@contextmanager
def api_explorer() -> Iterator[Explorer]:
    """Yield the API and the server that describes it."""
    explorer = Explorer()

    async def health(request: Request) -> JSONResponse:
        explorer.requests.append(("GET", "/health", None))
        return JSONResponse({"status": "ok"})

    async def tickets(request: Request) -> JSONResponse:
        body = await request.json()
        explorer.requests.append(("POST", "/tickets", body))
        return JSONResponse({"id": 41, **body}, status_code=201)

    api = Starlette(routes=[Route("/health", health), Route("/tickets", tickets, methods=["POST"])])
    with serve_app(api) as base, serve_app(_server(base).streamable_http_app()) as address:
        explorer.url = f"{address}/mcp"
        yield explorer


def _server(base: str) -> MCPServer:
    server = MCPServer("swagger", version="1.0.0", log_level="ERROR")

    @server.tool(name="listPaths", annotations=ToolAnnotations(read_only_hint=True))
    def list_paths() -> list[str]:
        """The methods and paths of the API."""
        return [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]

    @server.tool(name="getSchema", annotations=ToolAnnotations(read_only_hint=True))
    def get_schema(name: str) -> dict[str, Any]:
        """A schema of the API by its name."""
        schemas = DOCUMENT["components"]["schemas"]
        if name not in schemas:
            raise ToolError(f"there is no schema {name}; there is {', '.join(schemas)}")
        found: dict[str, Any] = schemas[name]
        return found

    @server.tool(name="testEndpoint", annotations=ToolAnnotations(destructive_hint=True, open_world_hint=True))
    def test_endpoint(method: str, path: str, body: dict[str, Any] | None = None) -> str:
        """Make a request to the API, with all that follows from it."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{base}{path}", data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return f"{answer.status} {answer.read().decode()}"

    return server
