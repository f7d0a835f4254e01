"""The HTTP API without retention: the time for which an answer can be read, and the substitute for the history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.engine import scheduler
from tests.fakes.mcp.endpoint import result
from tests.fakes.parts import ScriptedModel, ask_for, call, say
from tests.stored_content import files_with
from tests.web.api_server import Api, opened_api, scripted_choice

ASK = "/api/responses/stream"
SECRET, ANSWER = "Kirschkuchen", "Dattelbrot"


@pytest.fixture
async def api(folder: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(scheduler, "POLL_SECONDS", 0.05)
    (folder / "policy.toml").write_text('[servers.fake.tools]\nlook = "ALWAYS_ALLOW"\n', encoding="utf-8")
    async with opened_api(folder, model=scripted_choice(model), retention_days=0) as api:
        api.endpoint.on["tools/call"] = lambda m: result(m, {"content": [{"type": "text", "text": SECRET}]})
        yield api


def asking(text: str, *earlier: tuple[str, str], conversation: str = "cake") -> dict[str, object]:
    messages = [{"role": role, "content": content} for role, content in earlier]
    payload = {"messages": [*messages, {"role": "user", "content": text}], "stream": False}
    return {"conversation_id": conversation, "payload": payload}


async def wait_until_deleted(api: Api, response_id: str) -> None:
    """Wait until the response is gone."""
    while (await api.get(f"/api/responses/{response_id}")).status_code == 200:
        pass


async def test_an_answer_can_be_read_for_some_minutes(api: Api, model: ScriptedModel, folder: Path) -> None:
    model.script = [say(ANSWER)]
    first = (await api.post(ASK, json=asking(SECRET), headers={"Idempotency-Key": "k1"})).json()
    again = (await api.post(ASK, json=asking(SECRET), headers={"Idempotency-Key": "k1"})).json()
    read = (await api.get(f"/api/responses/{first['responseId']}")).json()
    assert first["text"] == again["text"] == read["text"] == ANSWER
    assert len(model.requests) == 1
    assert files_with(folder / "countersign.db", ANSWER) != []


async def test_after_that_it_is_deleted_and_says_so(
    api: Api, model: ScriptedModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script = [ask_for(call("fake__look", where=SECRET)), say(ANSWER)]
    body = asking(SECRET)
    response_id = (await api.post(ASK, json=body, headers={"Idempotency-Key": "k1"})).json()["responseId"]
    monkeypatch.setattr(scheduler, "FETCH_SECONDS", 0.0)
    await wait_until_deleted(api, response_id)
    for answer in (
        await api.get(f"/api/responses/{response_id}"),
        await api.get(f"/api/responses/{response_id}/stream"),
        await api.post(ASK, json=body, headers={"Idempotency-Key": "k1"}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "deleted")
    assert len(model.requests) == 2, "a repeated request is not asked again"
    assert [name for name in (SECRET, ANSWER) if files_with(folder / "countersign.db", name)] == []
    conversation = (await api.get("/api/conversations/cake")).json()
    assert (conversation["messages"], conversation["toolCalls"], conversation["title"]) == ([], [], "")
    calls = (await api.get("/api/mcp/tool-calls")).json()
    assert [(each["name"], each["status"], each["error"]) for each in calls["calls"]] == [
        ("fake.look", "COMPLETED", None)
    ]


async def test_the_clients_messages_are_all_that_the_model_knows_of_earlier_ones(
    api: Api, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script = [say(ANSWER), say("as I said")]
    response_id = (await api.post(ASK, json=asking(SECRET))).json()["responseId"]
    monkeypatch.setattr(scheduler, "FETCH_SECONDS", 0.0)
    await wait_until_deleted(api, response_id)
    await api.post(ASK, json=asking("again?", ("user", SECRET), ("assistant", ANSWER)))
    context = "\n".join(message.text for message in model.requests[-1].messages)
    assert f"user: {SECRET}" in context
    assert f"assistant: {ANSWER}" in context


async def test_the_clients_messages_come_once_while_earlier_turns_can_still_be_read(
    api: Api, model: ScriptedModel
) -> None:
    model.script = [say(ANSWER), say("as I said"), say("and again")]
    await api.post(ASK, json=asking(SECRET))
    await api.post(ASK, json=asking("again?", ("user", SECRET), ("assistant", ANSWER)))
    assert "\n".join(message.text for message in model.requests[-1].messages).count(ANSWER) == 1
    await api.post(ASK, json=asking("without them?"))
    assert ANSWER in "\n".join(message.text for message in model.requests[-1].messages)
