"""Authentication: tokens, roles, workspaces, and failed attempts per address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from fastapi import APIRouter, FastAPI

from bot.domain.api_clients import ApiRole
from bot.errors import DatabaseUnavailable
from bot.web.authentication import LoginThrottle, ensure_workspace
from bot.web.parameters import AdminCaller, ApproverCaller, MemberCaller
from bot.web.problems import Problem
from tests.fakes.parts import ANA
from tests.web.api_server import opened_api
from tests.web.minimal_api import OPERATORS, MemoryTokens, serve_routes

WRONG = (None, "x", "cs_" + "a" * 43, OPERATORS[:-1], f"{OPERATORS}x", OPERATORS.upper())


def routes() -> APIRouter:
    router = APIRouter()

    @router.get("/api/member")
    async def member(caller: MemberCaller) -> str:
        return caller.author.principal

    @router.get("/api/language")
    async def language(caller: MemberCaller) -> str | None:
        return caller.member.language

    @router.get("/api/approver")
    async def approver(caller: ApproverCaller) -> str:
        return caller.author.principal

    @router.get("/api/admin")
    async def admin(caller: AdminCaller) -> str:
        return caller.author.principal

    @router.get("/api/workspaces/{workspace}")
    async def inside(caller: MemberCaller, workspace: str) -> str:
        return ensure_workspace(caller, workspace)

    return router


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Served:
    client: httpx2.AsyncClient
    tokens: MemoryTokens
    clock: Clock

    async def get(self, path: str, token: str | None, scheme: str = "Bearer") -> httpx2.Response:
        headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
        request = self.client.build_request("GET", path)
        request.headers.pop("authorization")
        request.headers.update(headers)
        return await self.client.send(request)


@pytest.fixture
async def small() -> AsyncIterator[Served]:
    tokens, clock = MemoryTokens(), Clock()
    attempts = LoginThrottle(at_once=10, seconds=6, clock=clock)
    async with serve_routes(routes(), tokens=tokens, attempts=attempts) as client:
        yield Served(client, tokens, clock)


async def test_every_bad_token_gets_the_same_answer(small: Served) -> None:
    answers = [await small.get("/api/member", token) for token in WRONG]
    answers += [await small.get("/api/member", OPERATORS, "Basic"), await small.get("/api/nothing", None)]
    for answer in answers:
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["error"] == answers[0].json()["error"]
    assert answers[0].json()["error"] == {
        "code": "unauthorized",
        "message": "A valid API token is required.",
        "fix": "send Authorization: Bearer TOKEN; `countersign tokens create` makes one",
        "fields": {},
    }
    assert small.tokens.looked == 1, "what cannot be a token is not looked for"


async def test_the_operators_token_and_those_in_the_store_are_let_in_under_their_names(small: Served) -> None:
    night = small.tokens.add("night", ApiRole.APPROVER)
    for token, scheme, principal in (
        (OPERATORS, "Bearer", "api:admin"),
        (night, "Bearer", "api:night"),
        (night, "bearer", "api:night"),
    ):
        answer = await small.get("/api/member", token, scheme)
        assert (answer.status_code, answer.json()) == (200, principal)


async def test_a_role_has_the_rights_of_the_smaller_ones_and_its_own(small: Served) -> None:
    by_role = {role: small.tokens.add(role.value, role) for role in ApiRole}
    found = {
        role: [(await small.get(f"/api/{each.value}", token)).status_code for each in ApiRole]
        for role, token in by_role.items()
    }
    assert found == {ApiRole.MEMBER: [200, 403, 403], ApiRole.APPROVER: [200, 200, 403], ApiRole.ADMIN: [200, 200, 200]}
    refused = (await small.get("/api/admin", by_role[ApiRole.APPROVER])).json()["error"]
    assert (refused["code"], refused["message"]) == ("forbidden", "This takes a token with the role admin.")


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", None),
        ("*", None),
        ("ja", "ja"),
        ("ja-JP,ja;q=0.9,en;q=0.8", "ja"),
        ("en;q=0.5, ja;q=0.7", "ja"),
        ("tlh, ja;q=0.3", "ja"),
        ("ja;q=0, tlh", None),
        ("*;q=1, ja;q=0.1", "ja"),
        ("日本語, q=q, ;;;", None),
    ],
)
async def test_the_language_of_a_client_is_the_installed_one_that_it_accepts_best(
    small: Served, header: str, language: str | None
) -> None:
    headers = {b"Accept-Language": header.encode()} if header else {}
    answer = await small.client.get("/api/language", headers=headers)
    assert (answer.status_code, answer.json()) == (200, language)


async def test_a_token_of_one_workspace_is_good_for_no_other(small: Served) -> None:
    everywhere, of_one = small.tokens.add("all"), small.tokens.add("one", ApiRole.ADMIN, "slack:T1")
    statuses = [
        (await small.get(f"/api/workspaces/{workspace}", token)).status_code
        for token in (everywhere, of_one)
        for workspace in ("slack:T1", "slack:T2", "slack:T", "discord:T1")
    ]
    assert statuses == [200, 200, 200, 200, 200, 403, 403, 403]


async def test_an_address_with_too_many_failures_waits_and_good_tokens_never_do(small: Served) -> None:
    night = small.tokens.add("night")
    assert [(await small.get("/api/member", "x")).status_code for _ in range(12)] == [401] * 10 + [429] * 2
    refused = await small.get("/api/member", "x")
    assert (refused.headers["retry-after"], refused.json()["error"]["code"]) == ("6", "too_many_failures")
    assert [(await small.get("/api/member", token)).status_code for token in (night, OPERATORS)] == [200, 200]
    small.clock.now += 6
    assert [(await small.get("/api/member", "x")).status_code for _ in range(2)] == [401, 429]


async def test_failed_tokens_are_counted_for_each_address_that_they_come_from(small: Served) -> None:
    assert [(await small.get("/api/member", "x")).status_code for _ in range(11)][-1] == 429
    elsewhere = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
    async with httpx2.AsyncClient(base_url=small.client.base_url, transport=elsewhere, timeout=20) as other:
        assert (await other.get("/api/member", headers={"Authorization": "Bearer x"})).status_code == 401


async def test_a_database_that_is_away_is_no_wrong_token(small: Served) -> None:
    token = small.tokens.add("night")
    small.tokens.trouble = DatabaseUnavailable("The database db.internal is away: refused.", "start it")
    answer = await small.get("/api/member", token)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "db.internal" not in answer.text
    assert (await small.get("/api/member", OPERATORS)).status_code == 200


async def test_a_route_without_authentication_refuses_every_request() -> None:
    app = FastAPI()
    app.include_router(routes())
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(Problem) as raised:
            await client.get("/api/member", headers={"Authorization": f"Bearer {OPERATORS}"})
    assert raised.value.status == 401


def test_failures_of_one_address_are_not_anothers_and_few_are_remembered() -> None:
    clock = Clock()
    attempts = LoginThrottle(at_once=1, seconds=10, clock=clock, most=2)
    assert [attempts.record_failure("a"), attempts.record_failure("a"), attempts.record_failure("b")] == [0, 10, 0]
    clock.now += 4
    assert attempts.record_failure("a") == pytest.approx(6)
    attempts.record_failure("c")
    assert attempts.record_failure("b") == 0, "the one that failed longest ago is forgotten"


async def test_tokens_are_read_from_the_database_at_every_request(folder: Path) -> None:
    async with opened_api(folder) as api:
        token = await api.token("ci", ApiRole.ADMIN)
        assert (await api.get("/api/nothing", token=token)).status_code == 404
        await api.parts.tokens.revoke("ci", ANA)
        assert (await api.get("/api/nothing", token=token)).status_code == 401
        assert (await api.get("/api/nothing", token=None)).status_code == 401
        assert (await api.get("/healthz", token=None)).status_code == 200
