"""The API's own description: `/openapi.json`, and a plain list of the routes at `/docs`. Served only if the operator
wants it (`API_DOCS=true`).

The list is a page of our own: the usual pages of that kind load scripts from elsewhere, and this server lets no page do
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

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
    """The two addresses, for the routes of this application."""

    async def openapi(_request: Request) -> Response:
        return JSONResponse(app.openapi())

    async def docs(_request: Request) -> Response:
        return HTMLResponse(page(app.openapi()))

    return [Route("/openapi.json", openapi), Route("/docs", docs)]


def page(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as a page: each subject with its routes."""
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
