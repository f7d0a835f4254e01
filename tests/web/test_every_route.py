"""Every route of the API rejects a missing token, an insufficient role, and a token of another workspace."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.routing import RouteContext, iter_route_contexts

from bot.domain.api_clients import ApiRole
from bot.web.parameters import RequireRole
from bot.web.routes import build_api
from tests.web.api_server import Api

OPEN = ("/healthz",)
"""Routes without authentication, for load balancers."""
HOME, ELSEWHERE = "slack:T1", "slack:T2"


@dataclass(frozen=True)
class Known:
    """A route of the API. `needs` is the role it requires."""

    method: str
    path: str
    needs: ApiRole

    def address(self, workspace: str) -> str:
        return re.sub(r"\{(\w+)[^}]*\}", lambda name: workspace if "workspace" in name[1].lower() else "x", self.path)

    @property
    def is_of_a_workspace(self) -> bool:
        return "{workspace" in self.path


def needs(dependant: Any) -> Iterator[ApiRole]:
    """Yield the roles that a route and its dependencies require."""
    for dependency in dependant.dependencies:
        if isinstance(dependency.call, RequireRole):
            yield dependency.call.role
        yield from needs(dependency)


def known_routes(route: RouteContext) -> Iterator[Known]:
    roles = list(needs(route.dependant))
    assert roles, f"{route.path} lets everybody in who has a token: say whom it is for"
    assert route.path is not None
    for method in route.methods or ():
        yield Known(method, route.path, max(roles, key=list(ApiRole).index))


@pytest.fixture
def every(api: Api) -> list[Known]:
    found = [each for route in iter_route_contexts(build_api(api.parts).routes) for each in known_routes(route)]
    assert len(found) > 20
    return found


async def test_no_route_exists_for_a_caller_without_a_token(api: Api, every: list[Known]) -> None:
    codes = []
    for route in every:
        answer = await api.request(route.method, route.address(HOME), token=None)
        # From the eleventh failure on the response is 429.
        assert answer.status_code in (401, 429), route
        codes.append(answer.status_code)
    assert codes[0] == 401
    for path in OPEN:
        assert (await api.get(path, token=None)).status_code == 200, path


async def test_no_route_is_there_for_a_role_that_is_too_small(api: Api, every: list[Known]) -> None:
    tokens = {role: await api.token(role.value + "-token", role) for role in ApiRole}
    refused = [
        (route, role)
        for route in every
        for role in ApiRole
        if list(ApiRole).index(role) < list(ApiRole).index(route.needs)
    ]
    assert refused
    for route, role in refused:
        answer = await api.request(route.method, route.address(HOME), token=tokens[role], json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), (route, role)


async def test_no_route_of_a_workspace_is_there_for_a_token_of_another(api: Api, every: list[Known]) -> None:
    token = await api.token("visitor", ApiRole.ADMIN, ELSEWHERE)
    of_workspaces = [route for route in every if route.is_of_a_workspace]
    assert of_workspaces
    for route in of_workspaces:
        answer = await api.request(route.method, route.address(HOME), token=token, json={})
        assert answer.status_code in (403, 404), (route, answer.text)
        assert answer.json()["error"]["code"] in ("other_workspace", "not_found"), (route, answer.text)


MISTYPED = [
    ("POST", "/api/responses", "POST /api/responses/stream"),
    ("POST", "/responses/stream", "POST /api/responses/stream"),
    ("GET", "/api/usage/", "GET /api/usage"),
    ("HEAD", "/api/Usage", ""),
    ("GET", "/api/response/s3cret-thing/stream", "GET /api/responses/{responseId}/stream"),
    ("POST", "/api/usages", "GET /api/usage"),
    ("GET", "/wp-login.php", ""),
    ("GET", "/" + "s3cret-thing/" * 1_000, ""),
]


async def test_a_caller_with_a_token_who_mistypes_an_address_reads_the_nearest(
    api: Api, subtests: pytest.Subtests
) -> None:
    for method, path, meant in MISTYPED:
        with subtests.test(f"{method} {path[:50]}"):
            answer = await api.request(method, path)
            assert answer.status_code == 404
            assert "s3cret" not in answer.text
            if method != "HEAD":
                fix = answer.json()["error"]["fix"]
                assert fix.removeprefix("did you mean ").rstrip("?").split(", ")[0] == meant
                assert fix.count(",") <= 2
            stranger = await api.request(method, path, token=None)
            assert stranger.status_code == 401
            assert "did you mean" not in stranger.text


async def test_a_wrong_method_is_told_those_that_there_are(api: Api) -> None:
    answer = await api.request("DELETE", "/api/usage")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert answer.json()["error"]["fix"] == "use one of GET, HEAD, OPTIONS"
