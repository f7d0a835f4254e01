"""Usage of models over HTTP, and the roles that may read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.completions import Completion, StopReason, Usage
from bot.domain.messages import assistant
from tests.fakes.parts import ScriptedModel
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api, scripted_choice

PRICES = 'currency = "EUR"\n[[models]]\nmodel = "scripted"\ninput = 3\noutput = 15\n'
LIMITS = '[[limits]]\nper = "person"\nevery = "day"\ntokens = 1_500\nmoney = 2.50\n'
TAKEN = Usage(1_000, 200, 400)


@pytest.fixture
async def api(folder: Path) -> AsyncIterator[Api]:
    (folder / "prices.toml").write_text(PRICES, encoding="utf-8")
    (folder / "limits.toml").write_text(LIMITS, encoding="utf-8")
    model = ScriptedModel([Completion(assistant("Done."), StopReason.ANSWERED, TAKEN) for _ in range(5)])
    files: dict[str, Any] = {"prices_file": folder / "prices.toml", "limits_file": folder / "limits.toml"}
    async with opened_api(folder, model=scripted_choice(model), **files) as api:
        yield api


async def ask(api: Api, text: str, token: str = ADMIN_TOKEN, **more: Any) -> dict[str, Any]:
    answer = await api.post(
        "/api/responses/stream", json={"payload": {"input": text, "stream": False}, **more}, token=token
    )
    return dict(answer.json())


async def get_usage(api: Api, query: str = "", token: str = ADMIN_TOKEN) -> dict[str, Any]:
    answer = await api.get(f"/api/usage{query}", token=token)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_token_sees_its_own_usage_and_its_remaining_limits(api: Api) -> None:
    ci = await api.token("ci", ApiRole.MEMBER)
    await ask(api, "the operator's own")
    await ask(api, "hi", ci)
    found = await get_usage(api, token=ci)
    total = {
        "questions": 1,
        "requests": 1,
        "inputTokens": 1_000,
        "cachedTokens": 400,
        "cacheWrites": 0,
        "outputTokens": 200,
        "reasoningTokens": 0,
        "costs": {"EUR": 0.006},
        "unpriced": 0,
        "estimated": 0,
    }
    assert found["total"] == total
    assert (found["by"], found["sums"]) == ("model", [{**total, "name": "scripted"}])
    assert found["since"].endswith("-01T00:00:00.000Z")
    tokens, money = found["limits"]
    resets = tokens.pop("resetsAt")
    assert tokens == {"per": "person", "every": "day", "unit": "tokens", "used": 1_200, "most": 1_500, "currency": ""}
    assert money == {
        "per": "person", "every": "day", "unit": "money", "used": 0.006, "most": 2.5, "currency": "EUR",
        "resetsAt": resets,
    }  # fmt: skip


async def test_an_admin_sees_its_workspace_and_the_operator_all_of_them(api: Api) -> None:
    slack = await api.token("slack-ops", ApiRole.ADMIN, "slack:T1")
    await ask(api, "one")
    await ask(api, "two", slack, workspace="slack:T1")
    everything = await get_usage(api, "?of=all&by=workspace")
    assert [(each["name"], each["requests"]) for each in everything["sums"]] == [("api:default", 1), ("slack:T1", 1)]
    assert everything["limits"] == []
    theirs = await get_usage(api, "?of=workspace&by=person", slack)
    assert [each["name"] for each in theirs["sums"]] == ["api:slack-ops"]
    assert (await get_usage(api, "?of=workspace&workspace=slack:T1&since=1h"))["total"]["requests"] == 1
    assert (await get_usage(api, "?since=2000-01-01"))["since"] == "2000-01-01T00:00:00.000Z"


async def test_a_member_sees_only_their_own_usage(api: Api) -> None:
    ci = await api.token("ci", ApiRole.APPROVER)
    slack = await api.token("slack-ops", ApiRole.ADMIN, "slack:T1")
    for query, token in (
        ("of=workspace", ci),
        ("of=all", ci),
        ("of=all", slack),
        ("of=workspace&workspace=test:w", slack),
    ):
        assert (await api.get(f"/api/usage?{query}", token=token)).status_code == 403, query
    assert (await api.get("/api/usage", token=None)).status_code == 401


UNUSABLE = [
    "since=yesterday",
    "since=0001-01-01T00:00%2B14:00",
    "since=9999-12-31T23:59-14:00",
    "of=others",
    "by=moon",
    "workspace=nowhere",
]


async def test_an_invalid_query_is_refused_with_its_field(api: Api, subtests: pytest.Subtests) -> None:
    for query in UNUSABLE:
        with subtests.test(query):
            answer = await api.get(f"/api/usage?{query}")
            assert answer.status_code == 422
            assert query.partition("=")[0] in answer.json()["error"]["fields"]


async def test_a_question_past_the_limit_fails_with_the_reason(api: Api) -> None:
    ci = await api.token("ci", ApiRole.MEMBER)
    await ask(api, "one", ci)
    await ask(api, "two", ci)
    assert (await get_usage(api, token=ci))["total"]["requests"] == 2
    refused = await ask(api, "three", ci)
    assert "your limit for today is used up, 2,400 of 1,500 tokens" in str(refused)
    assert (await get_usage(api, token=ci))["total"]["requests"] == 2
