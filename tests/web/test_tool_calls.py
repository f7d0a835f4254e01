"""The log of tool calls over HTTP, and the times of calls and messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from tests.fakes.mcp.endpoint import result
from tests.fakes.parts import ScriptedModel, ask_for, call, say
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api, scripted_choice

CALLS = "/api/mcp/tool-calls"


@pytest.fixture
async def api(folder: Path, model: ScriptedModel) -> AsyncIterator[Api]:
    async with opened_api(folder, model=scripted_choice(model)) as api:
        api.endpoint.on["tools/call"] = lambda m: result(m, {"content": [{"type": "text", "text": "ok"}]})
        rule = {"serverId": "fake", "toolName": "look", "policy": "ALWAYS_ALLOW"}
        assert (await api.put("/api/mcp/approval-policies", json=rule)).status_code == 200
        yield api


async def ask(api: Api, text: str, token: str = ADMIN_TOKEN) -> dict[str, Any]:
    body = {"payload": {"input": text, "stream": False}, "conversationId": "calls"}
    answer = await api.post("/api/responses/stream", json=body, token=token)
    assert answer.status_code in (200, 202), answer.text
    return dict(answer.json())


async def names(api: Api, query: str = "", token: str = ADMIN_TOKEN) -> list[str]:
    listed = (await api.get(f"{CALLS}{query}", token=token)).json()
    assert listed["total"] == len(listed["calls"])
    return [logged["name"] for logged in listed["calls"]]


async def test_calls_are_listed_with_their_outcome_and_filtered(api: Api, model: ScriptedModel) -> None:
    model.script = [ask_for(call("fake__look", "c1"), call("fake__lok", "c2")), say("Done.")]
    response = await ask(api, "look")
    listed = (await api.get(CALLS)).json()
    assert (listed["total"], listed["page"], listed["size"]) == (2, 1, 20)
    by_name = {logged["name"]: logged for logged in listed["calls"]}
    done, failed = by_name["fake.look"], by_name["fake__lok"]
    assert (done["status"], done["error"]) == ("COMPLETED", None)
    assert done["seconds"] >= 0
    assert failed["status"] == "FAILED"
    assert "There is no tool called 'fake__lok'" in failed["error"]
    shown = {made["id"]: made for made in response["toolCalls"]}
    assert {logged["id"] for logged in listed["calls"]} == shown.keys()
    assert done["responseId"] == response["responseId"]
    assert done["conversationId"] == response["conversationId"]
    assert done["createdAt"] == shown[done["id"]]["createdAt"]
    assert await names(api, "?status=FAILED") == ["fake__lok"]
    assert sorted(await names(api, "?status=FAILED&status=COMPLETED")) == ["fake.look", "fake__lok"]
    assert await names(api, "?server=fake") == await names(api, "?tool=look") == ["fake.look"]
    assert await names(api, "?server=other") == await names(api, "?askedBy=slack:U1") == []
    assert await names(api, "?until=1d") == await names(api, "?since=2999-01-01") == []
    assert len(await names(api, "?since=1d")) == 2
    page = (await api.get(f"{CALLS}?size=1&page=2")).json()
    assert (len(page["calls"]), page["total"]) == (1, 2)


async def test_the_log_is_for_admins_and_ends_at_their_workspace(api: Api, model: ScriptedModel) -> None:
    model.script = [ask_for(call("fake__look")), say("Done.")]
    await ask(api, "look")
    member = await api.token("one", ApiRole.MEMBER)
    assert (await api.get(CALLS, token=member)).status_code == 403
    elsewhere = await api.token("boss", ApiRole.ADMIN, "slack:T1")
    assert await names(api, token=elsewhere) == []
    assert await names(api) == ["fake.look"]
    assert await names(api, "?workspace=slack:T1") == []


async def test_a_filter_that_cannot_be_used_is_named(api: Api, subtests: pytest.Subtests) -> None:
    for query in ("since=soon", "until=x", "status=GONE", "size=0", "page=9999&size=100"):
        with subtests.test(query):
            answer = await api.get(f"{CALLS}?{query}")
            assert answer.status_code == 422
            assert query.partition("=")[0] in str(answer.json()["error"])


async def test_calls_and_messages_have_their_own_times(api: Api, model: ScriptedModel) -> None:
    model.script = [ask_for(call("fake__look")), say("Done.")]
    response_id = (await ask(api, "look"))["responseId"]
    response = (await api.get(f"/api/responses/{response_id}")).json()
    (made,) = response["toolCalls"]
    assert response["createdAt"] <= made["createdAt"] <= made["startedAt"] <= made["endedAt"]
    question, request, result, answer = response["messages"]
    assert question["createdAt"] == response["createdAt"]
    assert [message["role"] for message in (request, result, answer)] == ["ASSISTANT", "TOOL", "ASSISTANT"]
    assert request["createdAt"] <= result["createdAt"] == made["endedAt"] <= answer["createdAt"]
