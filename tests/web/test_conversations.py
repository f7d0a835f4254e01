"""Conversations over HTTP: their owners, content and deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.conversations import Author, ConversationKey
from tests.fakes.parts import ScriptedModel, ask_for, call, message, say
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api, scripted_choice

WRITE = "fake__write"


@pytest.fixture
async def api(folder: Path, model: ScriptedModel) -> AsyncIterator[Api]:
    async with opened_api(folder, model=scripted_choice(model)) as api:
        yield api


async def ask(api: Api, text: str, token: str = ADMIN_TOKEN, **more: Any) -> dict[str, Any]:
    body = {"payload": {"input": text, "stream": False}, **more}
    answer = await api.post("/api/responses/stream", json=body, token=token)
    assert answer.status_code in (200, 202), answer.text
    return dict(answer.json())


async def list_conversations(api: Api, token: str = ADMIN_TOKEN, query: str = "") -> list[str]:
    found = (await api.get(f"/api/conversations{query}", token=token)).json()
    return [each["id"] for each in found["conversations"]]


async def test_a_conversation_is_listed_the_latest_first_read_and_deleted(api: Api, model: ScriptedModel) -> None:
    model.script = [say("One."), say("Two."), say("Three.")]
    for text, name in (("first question", "a"), ("second", 7), ("and more", "a")):
        await ask(api, text, conversationId=name, title="")
    answer = (await api.get("/api/conversations")).json()
    assert (answer["total"], answer["page"], answer["size"]) == (2, 1, 20)
    first = answer["conversations"][0]
    assert (first["id"], first["title"], first["status"], first["responses"]) == ("a", "first question", "COMPLETED", 2)
    assert (first["workspace"], first["startedBy"]) == ("api:default", "admin")
    assert first["updatedAt"] >= first["createdAt"]
    assert first["createdAt"].endswith("Z")
    assert await list_conversations(api, query="?size=1&page=2") == ["7"]
    found = (await api.get("/api/conversations/a")).json()
    assert [(each["role"], each["content"]) for each in found["messages"]] == [
        ("USER", "first question"),
        ("ASSISTANT", "One."),
        ("USER", "and more"),
        ("ASSISTANT", "Three."),
    ]
    assert (await api.delete("/api/conversations/a")).status_code == 204
    assert (await api.get("/api/conversations/a")).status_code == 404
    assert (await api.delete("/api/conversations/a")).status_code == 404
    assert await list_conversations(api) == ["7"]


async def test_an_empty_conversation_keeps_its_title(api: Api, model: ScriptedModel) -> None:
    model.script = [say("Hi.")]
    made = await api.post("/api/conversations", json={"conversationId": "plans", "title": "  The  plans "})
    assert (made.status_code, made.headers["location"]) == (201, "/api/conversations/plans")
    assert (made.json()["title"], made.json()["status"], made.json()["responses"]) == ("The plans", "CREATED", 0)
    assert (await api.get("/api/conversations/plans")).json()["messages"] == []
    assert (await api.post("/api/conversations", json={"conversationId": "plans"})).status_code == 409
    await ask(api, "hello", conversationId="plans", title="Another title")
    found = (await api.get("/api/conversations/plans")).json()
    assert (found["title"], found["status"], len(found["messages"])) == ("The plans", "COMPLETED", 2)
    other = (await api.post("/api/conversations", json={})).json()
    assert (await api.delete(f"/api/conversations/{other['id']}")).status_code == 204


async def test_a_title_comes_with_the_first_question(api: Api, model: ScriptedModel) -> None:
    model.script = [say("Hi.")]
    await ask(api, "hello", conversationId="x", title="Of my own")
    assert (await api.get("/api/conversations/x")).json()["title"] == "Of my own"


async def test_a_running_conversation_is_not_deleted(api: Api, model: ScriptedModel) -> None:
    model.script = [ask_for(call(WRITE, text="hello")), say("No.")]
    response = await ask(api, "write it", conversationId="busy")
    refused = await api.delete("/api/conversations/busy")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_at_rest")
    assert (await api.get("/api/conversations/busy")).json()["toolCalls"][0]["waitingForApproval"] is True
    await api.delete(f"/api/responses/{response['responseId']}")
    assert (await api.delete("/api/conversations/busy")).status_code == 204


async def test_everybody_sees_their_own_and_admins_all_of_their_workspace(api: Api, model: ScriptedModel) -> None:
    model.script = [say("Hi.")] * 4
    one, two = await api.token("one", ApiRole.MEMBER), await api.token("two", ApiRole.MEMBER, "slack:T1")
    boss = await api.token("boss", ApiRole.ADMIN, "slack:T1")
    await ask(api, "hello", one, conversationId="same")
    await ask(api, "hello", two, conversationId="same")
    chat = ConversationKey("slack", "T1", "C2", "17.000100")
    elsewhere = ConversationKey("slack", "T2", "C2", "17.000200")
    for key in (chat, elsewhere):
        await api.runtime.turn_log.enqueue(
            message("hi", str(key), conversation=key, author=Author("slack", "U1", "Sam"))
        )
    assert (await list_conversations(api, one), await list_conversations(api, two)) == (["same"], ["same"])
    assert set(await list_conversations(api, boss)) == {"api:slack!3AT1:two:same", "slack:T1:C2:17.000100"}
    assert await list_conversations(api, boss, "?own=true") == []
    assert len(await list_conversations(api)) == 4
    assert await list_conversations(api, query="?workspace=slack:T2") == ["slack:T2:C2:17.000200"]
    read = (await api.get("/api/conversations/slack:T1:C2:17.000100", token=boss)).json()
    assert [(each["role"], each["content"]) for each in read["messages"]] == [("USER", "hi")]
    theirs = (await api.get("/api/conversations/api:slack!3AT1:two:same", token=boss)).json()
    assert theirs["startedBy"] == "two"
    for token, name in (
        (one, "slack:T1:C2:17.000100"),
        (one, "api:slack!3AT1:two:same"),
        (two, "slack:T1:C2:17.000100"),
        (boss, "slack:T2:C2:17.000200"),
        (boss, "api:default:one:same"),
        (one, "%2e%2e"),
        (one, "a:b"),
        (one, "slack%3AT1:!"),
    ):
        for method in ("GET", "DELETE"):
            assert (await api.request(method, f"/api/conversations/{name}", token=token)).status_code == 404, name


async def test_a_token_asks_only_where_it_belongs(api: Api, model: ScriptedModel) -> None:
    scoped, free = await api.token("scoped", ApiRole.MEMBER, "slack:T1"), await api.token("free", ApiRole.MEMBER)
    cases: list[tuple[str, dict[str, Any], int]] = [
        (scoped, {"workspace": "slack:T2"}, 403),
        (free, {"workspace": "no workspace"}, 422),
        (free, {"conversationId": "a b"}, 422),
        (free, {"conversationId": "slack:T1:C2:17.000100"}, 403),
        (free, {"conversationId": "api:default:scoped:x"}, 403),
        (free, {"conversationId": "a:b"}, 404),
        (free, {"workspace": "slack:T\u00e9"}, 422),
        (free, {"conversationId": "x" * 129}, 422),
        (free, {"conversationId": "api:slack!3AT1:free:" + "x" * 129}, 422),
        (free, {"conversationId": "api:slack!3AT1:free:a!0Ab"}, 422),
        (free, {"conversationId": "api:slack!3AT1:free:"}, 422),
    ]
    for token, more, status in cases:
        body = {"payload": {"input": "hello", "stream": False}, **more}
        assert (await api.post("/api/responses/stream", json=body, token=token)).status_code == status, more
    assert model.requests == []
    model.script = [say("Hi.")] * 3
    there = await ask(api, "hello", free, workspace="slack:T1", conversationId="mine")
    assert there["conversationId"] == "api:slack!3AT1:free:mine"
    again = await ask(api, "and again", free, conversationId="api:slack!3AT1:free:mine")
    assert again["conversationId"] == there["conversationId"]
    assert await list_conversations(api, free) == []
    assert await list_conversations(api, free, "?workspace=slack:T1") == [there["conversationId"]]
    assert (await api.get("/api/conversations/mine?workspace=slack:T1", token=free)).status_code == 200
    assert (await ask(api, "hello", scoped, workspace="slack:T1", conversationId="own"))["conversationId"] == "own"
