"""Validation errors of a request: plain sentences that never repeat the input."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from typing import Annotated, Any, Literal

import httpx2
import pytest
from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field

from bot.web.routes import RequestModel
from tests.web.api_server import Api
from tests.web.minimal_api import serve_routes

SENT = "hunter2"
"""Part of every request body: the input could hold a secret."""


# ---------------------------------------------------------------------- the API's own requests


def fields(answer: httpx2.Response) -> dict[str, str]:
    assert answer.status_code == 422, answer.text
    said = answer.json()["error"]
    assert (said["code"], said["message"]) == ("invalid", "Some fields cannot be used.")
    assert SENT not in answer.text
    found: dict[str, str] = said["fields"]
    return found


BODIES: list[tuple[str, Any, dict[str, str]]] = [
    ("/api/conversations", [], {"body": "It must be a JSON object."}),
    ("/api/conversations", {"title": 4711}, {"title": "It must be text."}),
    ("/api/conversations", {"title": SENT * 40}, {"title": "It must be at most 255 characters long."}),
    ("/api/conversations", {"titel": SENT}, {"titel": "It is not known here. Did you mean `title`?"}),
    ("/api/conversations", {"xyzzy": SENT}, {"xyzzy": "It is not known here."}),
    ("/api/conversations", {"conversation_id": 4.5}, {"conversation_id": "It must be text or a whole number."}),
    ("/api/responses/stream", {}, {"payload": "It is missing."}),
    ("/api/responses/stream", {"payload": SENT}, {"payload": "It must be a JSON object."}),
    (
        "/api/responses/stream",
        {"payload": {"input": "hello", "stream": SENT}},
        {"payload.stream": "It must be true or false."},
    ),
    (
        "/api/responses/stream",
        {"payload": {"messages": [{"role": SENT, "content": "hello"}]}},
        {"payload.messages.0.role": "It must be one of: user, assistant, system, developer, tool."},
    ),
    (
        "/api/responses/stream",
        {"payload": {"input": [{"role": "user", "content": [{"text": SENT}]}]}},
        {"payload.input.0.content.0.type": "It is missing."},
    ),
    ("/api/responses/stream", {"payload": {"input": 4711}}, {"payload.input": "It must be text or a list."}),
    (
        "/api/mcp/servers",
        {"name": "Jira", "config": {"headers": {"X-Key": [SENT]}, "heders": {}, "args": SENT}, "version": -1},
        {
            "config.headers.X-Key": "It must be text.",
            "config.heders": "It is not known here. Did you mean `headers`?",
            "config.args": "It must be a list.",
            "version": "It must be at least 0.",
        },
    ),
    (
        "/api/mcp/servers",
        {"name": "Jira", "connectTimeout": SENT, "baseURL": SENT},
        {"connectTimeout": "It must be a number.", "baseURL": "It is not known here. Did you mean `baseUrl`?"},
    ),
    (
        "/api/mcp/servers?connect=perhaps",
        {"trusted": SENT},
        {"connect": "It must be true or false.", "trusted": "It must be true or false."},
    ),
]


async def test_a_body_that_does_not_fit_is_told_field_by_field_in_plain_words(
    api: Api, subtests: pytest.Subtests
) -> None:
    for path, body, wrong in BODIES:
        with subtests.test(path, body=body):
            assert fields(await api.post(path, json=body)) == wrong


PATHS: list[tuple[str, dict[str, str]]] = [
    (f"/api/conversations?page={SENT}", {"page": "It must be a whole number."}),
    ("/api/conversations?page=0&size=101", {"page": "It must be at least 1.", "size": "It must be at most 100."}),
    (f"/api/conversations?own={SENT}", {"own": "It must be true or false."}),
    (f"/api/usage?of={SENT}", {"of": "It must be one of: me, workspace, all."}),
    (f"/api/conversations/{SENT * 80}", {"conversationId": "It must be at most 500 characters long."}),
    (
        f"/api/workspaces/{SENT}/mcp-servers",
        {"workspace": "A workspace is PLATFORM:ID, for example slack:T1."},
    ),
]


async def test_the_same_is_told_of_queries_and_paths(api: Api, subtests: pytest.Subtests) -> None:
    for path, wrong in PATHS:
        with subtests.test(path):
            assert fields(await api.get(path)) == wrong


# ---------------------------------------------------------------------- errors that no request of the API can have


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("an even number is wanted, such as 2")
    return number


class Leaf(RequestModel):
    size: Literal[1, 2] = 1


class Tree(RequestModel):
    """One field for each kind of limit."""

    leaves: list[Leaf] = Field(default=[], min_length=1, max_length=2)
    either: Annotated[str, Field(max_length=3)] | int = 2
    name: str = Field(default="", min_length=1)
    letters: str = Field(default="", pattern="^[a-z]*$")
    even: Annotated[int, AfterValidator(_even)] = 2
    whole: int = 0
    more: float = Field(default=1, gt=0.5, lt=1000)
    planted: date | None = None
    nothing: None = None


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    router = APIRouter()

    @router.post("/api/trees")
    async def plant(tree: Tree, most: Annotated[float, Query(allow_inf_nan=False)] = 1) -> BaseModel:
        return tree

    async with serve_routes(router, largest=10_000) as client:
        yield client


@pytest.mark.parametrize(
    ("tree", "wrong"),
    [
        ({"leaves": []}, {"leaves": "It must have 1 or more entries."}),
        ({"leaves": [{}, {}, {}]}, {"leaves": "It must have at most 2 entries."}),
        ({"leaves": [{"size": 3}]}, {"leaves.0.size": "It must be one of: 1, 2."}),
        ({"leaves": [{"sise": SENT}]}, {"leaves.0.sise": "It is not known here. Did you mean `size`?"}),
        ({"either": SENT}, {"either": "It must be at most 3 characters long."}),
        ({"name": ""}, {"name": "It must have 1 or more characters."}),
        ({"letters": SENT}, {"letters": "It must match the regular expression ^[a-z]*$"}),
        ({"even": 3}, {"even": "An even number is wanted, such as 2."}),
        ({"whole": 0.5}, {"whole": "It must be a whole number."}),
        ({"whole": "9" * 5000}, {"whole": "It must be a whole number with fewer digits."}),
        ({"more": 0.5}, {"more": "It must be more than 0.5."}),
        ({"more": 5000}, {"more": "It must be less than 1,000."}),
        ({"nothing": SENT}, {"nothing": "It must be null."}),
        ({"planted": SENT}, {"planted": "It cannot be used as it is."}),
    ],
)
async def test_every_limit_has_a_sentence_and_an_unforeseen_error_too(
    client: httpx2.AsyncClient, tree: dict[str, Any], wrong: dict[str, str]
) -> None:
    assert fields(await client.post("/api/trees", json=tree)) == wrong


async def test_a_body_that_is_missing_is_told_beside_a_query_that_is_wrong(client: httpx2.AsyncClient) -> None:
    assert fields(await client.post("/api/trees?most=inf")) == {
        "most": "It must be a number that is not infinite.",
        "body": "It is missing.",
    }
