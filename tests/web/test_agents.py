"""Agents over HTTP: their list, the right to use them, and the agent that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bot.domain.api_clients import ApiRole
from tests.fakes.parts import ScriptedModel, say
from tests.web.api_server import Api, opened_api, scripted_choice
from tests.web.streams import Stream, open_stream

ASK = "/api/responses/stream"
HOME, ELSEWHERE = "slack:T1", "slack:T2"


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel([say(f"answer {number}") for number in range(9)])


@pytest.fixture
async def api(folder: Path, model: ScriptedModel) -> AsyncIterator[Api]:
    """Yield an API where the agents support and データ are bound by name in one workspace."""
    async with opened_api(folder, model=scripted_choice(model)) as api:
        for name in ("support", "データ", "finance"):
            body = {"persona": f"You are the agent {name}.", "about": f"What {name} does"}
            answer = await api.put(f"/api/workspaces/{HOME}/agents/{name}", json=body)
            assert answer.status_code == 201, answer.text
        for name in ("support", "データ"):
            words = ["bind", name, "workspace", "--agent"]
            answer = await api.post("/api/commands", json={"command": "profile", "words": words, "workspace": HOME})
            assert not answer.json()["failed"], answer.text
        yield api


async def ask(api: Api, token: str, text: str, **more: Any) -> httpx2.Response:
    headers = more.pop("headers", {})
    body = {"payload": {"input": text, "stream": False}, **more}
    return await api.post(ASK, json=body, token=token, headers=headers)


def personas(model: ScriptedModel) -> list[str]:
    """Return the persona of each model request; empty if the request has no persona."""
    prompts = [request.messages[0].text for request in model.requests]
    return [prompt.partition("You are the agent ")[2].partition(".")[0] for prompt in prompts]


async def test_a_client_lists_its_agents_asks_one_and_the_conversation_goes_on_with_it(
    api: Api, model: ScriptedModel
) -> None:
    token = await api.token("desk", ApiRole.MEMBER, HOME)
    agents = (await api.get("/api/agents", token=token)).json()
    assert [(agent["name"], agent["about"], agent["default"]) for agent in agents] == [
        ("support", "What support does", False),
        ("データ", "What データ does", False),
    ]
    first = (await ask(api, token, "where is it?", agent="SUPPORT", conversationId="order-7")).json()
    assert first["agent"] == {"id": agents[0]["id"], "name": "support"}
    assert (await ask(api, token, "and now?", conversationId="order-7")).json()["agent"] == first["agent"]
    other = await ask(api, token, "いくつ", agent=agents[1]["id"], conversationId="order-7")
    assert other.json()["agent"]["name"] == "データ"
    assert (await ask(api, token, "who?", agent="default", conversationId="order-7")).json()["agent"] is None
    assert (await ask(api, token, "hello")).json()["agent"] is None
    assert personas(model) == ["support", "support", "データ", "", ""]


async def test_a_stream_names_the_agent_at_its_end(api: Api) -> None:
    token = await api.token("desk", ApiRole.MEMBER, HOME)
    body = {"payload": {"input": "where is it?"}, "agent": "support"}
    headers = {"Authorization": f"Bearer {token}"}
    async with open_stream(api.client, "POST", ASK, json=body, headers=headers) as stream:
        assert isinstance(stream, Stream)
        seen = await stream.read_to_end()
    assert seen[-1].data["agent"]["name"] == "support"


async def test_an_agent_that_is_not_for_this_client_is_not_found_and_those_that_are_get_named(
    api: Api, model: ScriptedModel
) -> None:
    token = await api.token("desk", ApiRole.MEMBER, HOME)
    for name in ("finance", "suport"):
        answer = await ask(api, token, "how much?", agent=name)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "no_such_agent")
        assert error["fix"] == "name one of these: support, データ, default"
        assert list(error["fields"]) == ["agent"]
    stranger = await api.token("other", ApiRole.MEMBER, ELSEWHERE)
    assert (await api.get("/api/agents", token=stranger)).json() == []
    answer = await ask(api, stranger, "where is it?", agent="support")
    assert (answer.status_code, answer.json()["error"]["fix"]) == (404, "name one of these: default")
    assert (await api.get(f"/api/agents?workspace={HOME}", token=stranger)).status_code == 403
    assert model.requests == []


async def test_an_idempotency_key_is_for_one_agent(api: Api) -> None:
    token = await api.token("desk", ApiRole.MEMBER, HOME)
    key = {"Idempotency-Key": "k1"}
    first = await ask(api, token, "where?", agent="support", headers=key)
    again = await ask(api, token, "where?", agent="support", headers=key)
    assert first.json()["responseId"] == again.json()["responseId"]
    other = await ask(api, token, "where?", agent="データ", headers=key)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")


async def test_a_profile_says_where_it_answers_to_its_name(api: Api) -> None:
    profile = (await api.get(f"/api/workspaces/{HOME}/agents/support")).json()
    assert (profile["about"], profile["boundTo"], profile["askedByNameIn"]) == ("What support does", [], [HOME])
    answer = await api.put(f"/api/workspaces/{HOME}/agents/support", json={"about": "x" * 201})
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, ["about"])
