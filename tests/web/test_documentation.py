"""The OpenAPI document: parameters, responses and errors of every route."""

from __future__ import annotations

import re
from typing import Any

from bot.web.application import reference_page
from bot.web.routes import build_api
from tests.web.api_server import Api, opened_api

METHODS = {"get", "post", "put", "patch", "delete"}


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): operation
        for path, all_of_it in document["paths"].items()
        for method, operation in all_of_it.items()
        if method in METHODS
    }


async def test_every_route_is_described_with_its_token_its_errors_and_an_id_of_its_own(api: Api) -> None:
    document = build_api(api.parts).openapi()
    found = operations(document)
    assert len(found) > 20
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids)
    for route, operation in found.items():
        assert operation["security"] == [{"token": []}], route
        assert operation["summary"], route
        assert operation["tags"], route
        assert {"401", "403", "422", "4XX", "5XX"} <= set(operation["responses"]), route
        problem = operation["responses"]["422"]["content"]["application/json"]["schema"]
        assert problem == {"$ref": "#/components/schemas/ErrorAnswer"}, route
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_names_on_the_wire_are_in_camel_case(api: Api) -> None:
    schemas = build_api(api.parts).openapi()["components"]["schemas"]
    names = [name for schema in schemas.values() for name in schema.get("properties", {})]
    # As in the APIs of models, whose messages clients reuse, and in the hooks of agents.
    others = {"image_url", "tool_name", "tool_input", "session_id", "tool_use_id"}
    assert [name for name in names if "_" in name.strip("_") and name not in others] == []


async def test_the_page_lists_every_route_and_loads_nothing(api: Api) -> None:
    document = build_api(api.parts).openapi()
    drawn = bytes(reference_page(document).body).decode()
    assert drawn.count("<li>") == len(operations(document))
    assert "POST /api/responses/stream" in drawn
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import|https?://", drawn)


def test_texts_of_a_page_forge_none_of_it() -> None:
    document = {
        "info": {"title": "<b>T</b>", "version": "1"},
        "paths": {"/x<i>": {"get": {"summary": "<script>alert(1)</script>", "tags": ["<u>"]}}},
    }
    assert not re.search(r"<(b|i|u|script)>", bytes(reference_page(document).body).decode())


async def test_it_is_served_only_where_the_operator_wants_it(folder: Any) -> None:
    async with opened_api(folder) as api:
        for path in ("/openapi.json", "/docs"):
            assert (await api.get(path)).status_code == 404
            assert (await api.get(path, token=None)).status_code == 401
    async with opened_api(folder, api_docs=True) as api:
        assert (await api.get("/openapi.json", token=None)).json()["openapi"].startswith("3.1")
        shown = await api.get("/docs", token=None)
        assert (shown.status_code, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert shown.headers["content-security-policy"].startswith("default-src 'none'")
