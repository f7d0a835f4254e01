"""Messages sent over HTTP, and the streams of their turns."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bot.domain.api_clients import ApiRole
from bot.domain.completions import Capabilities, Completion, ModelRequest
from bot.web.routes import EventStream, ServerEvent
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.fakes.parts import ScriptedModel, ask_for, call, say, until, words
from tests.web.api_server import Api, opened_api, scripted_choice
from tests.web.streams import PATIENCE, Stream, open_reply_stream, open_stream, replies

ASK = "/api/responses/stream"
LOOK, WRITE = "fake__look", "fake__write"
HIDDEN = "•••• (7 characters hidden: its name is that of a secret)"
GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"


def request_body(*texts: str, **more: Any) -> dict[str, Any]:
    """Return a request body whose last message is the input."""
    return {"payload": {"messages": [{"role": "user", "content": text} for text in texts], **more}}


def tools_answer(endpoint: FakeEndpoint, text: str = "done it") -> None:
    endpoint.on["tools/call"] = lambda m: result(m, {"content": [{"type": "text", "text": text}]})


@pytest.fixture
async def api(folder: Path, model: ScriptedModel) -> AsyncIterator[Api]:
    (folder / "policy.toml").write_text('[servers.fake.tools]\nlook = "ALWAYS_ALLOW"\n', encoding="utf-8")
    async with opened_api(folder, model=scripted_choice(model)) as api:
        tools_answer(api.endpoint)
        yield api


async def test_an_answer_comes_as_it_is_written_and_whole_at_the_end(api: Api, model: ScriptedModel) -> None:
    model.script = [say("It is sunny today.")]
    async with open_reply_stream(api.client, "how is the weather?", "weather") as stream:
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        seen = await stream.read_to_end()
    assert stream.names[0] == "init"
    told = groupby(name for name in stream.names if name != "conversation_status")
    assert [name for name, _ in told] == ["init", "message", "done"]
    init, done = seen[0].data, seen[-1].data
    assert (init["conversationId"], init["redelivery"], init["ignored"]) == ("weather", False, [])
    assert list(replies(seen).values()) == ["It is sunny today."]
    last_piece = [each.data for each in seen if each.name == "message"][-1]
    assert (last_piece["status"], last_piece["content"]) == ("COMPLETED", "It is sunny today.")
    assert (done["status"], done["text"], done["responseId"]) == ("COMPLETED", "It is sunny today.", init["responseId"])
    assert [each["role"] for each in done["messages"]] == ["USER", "ASSISTANT"]


async def test_tool_calls_are_streamed_and_a_waiting_one_with_everything_to_approve(
    api: Api, model: ScriptedModel
) -> None:
    model.script = [
        ask_for(call(LOOK, "c1", text="x"), call(WRITE, "c2", text="hello", api_key="hunter2")),
        say("Written."),
    ]
    async with open_reply_stream(api.client, "write it") as stream:
        wanted = await stream.until("approval_required")
        assert (wanted["server"], wanted["tool"], wanted["revision"]) == ("fake", "write", 1)
        assert wanted["arguments"] == {"text": "hello", "api_key": HIDDEN}
        assert wanted["hidden"] == 7
        assert {"name": "text", "value": "hello", "warnings": []} in wanted["shown"]
        assert wanted["expiresInSeconds"] == 1800
        assert wanted["signedBy"]
        assert (await stream.waiting())["status"] == "STREAMING"
        address = f"/api/responses/approval/{wanted['approvalRequestId']}"
        assert (await api.post(address, json={"approved": True})).json()["error"]["code"] == "open_first"
        assert (await api.post(f"{address}/open", json={})).json()["arguments"]["api_key"] == "hunter2"
        approved = await api.post(address, json={"approved": True})
        assert (approved.status_code, approved.json()["outcome"]) == (200, "approved")
        seen = await stream.read_to_end()
    assert "CREATED" not in [each.data["status"] for each in seen if each.name == "conversation_status"]
    calls = [(each.data["name"], each.data["status"]) for each in seen if each.name == "tool_call_update"]
    assert calls[-1] == ("write", "COMPLETED")
    assert ("look", "COMPLETED") in calls
    assert all("hunter2" not in str(each.data) for each in seen)
    done = seen[-1].data
    assert (done["text"], [each["result"] for each in done["toolCalls"]]) == ("Written.", ["done it", "done it"])
    assert [each["role"] for each in done["messages"]] == ["USER", "ASSISTANT", "TOOL", "TOOL", "ASSISTANT"]
    assert [each["name"] for each in done["messages"][1]["toolCalls"]] == ["look", "write"]
    sent = [message for _, message in api.endpoint.seen if message.get("method") == "tools/call"]
    assert sent[-1]["params"]["arguments"] == {"text": "hello", "api_key": "hunter2"}


async def test_a_denial_reaches_the_model_and_the_stream(api: Api, model: ScriptedModel) -> None:
    model.script = [ask_for(call(WRITE, text="hello")), say("I did not write it.")]
    async with open_reply_stream(api.client, "write it") as stream:
        wanted = await stream.until("approval_required")
        answer = await api.post(
            f"/api/responses/approval/{wanted['approvalRequestId']}", json={"approved": False, "reason": "not today"}
        )
        assert answer.json()["outcome"] == "denied"
        seen = await stream.read_to_end()
    (denied,) = [each.data for each in seen if each.name == "tool_call_update" and each.data["status"] == "DENIED"]
    assert (denied["decidedBy"], denied["reason"]) == ("admin", "not today")
    assert seen[-1].data["text"] == "I did not write it."
    assert any("not today" in text for text in words(model.requests[-1]))
    assert "tools/call" not in api.endpoint.methods()


async def test_a_client_that_loses_the_stream_goes_on_where_it_broke_off(api: Api, model: ScriptedModel) -> None:
    going_on = asyncio.Event()

    async def slowly(_request: ModelRequest) -> Completion:
        await going_on.wait()
        return say("And that is all.")

    model.script = [ask_for(call(LOOK, text="x"), text="I look it up."), slowly]
    async with open_reply_stream(api.client, "look") as first:
        begun = await first.until("tool_call_update", lambda told: told["status"] == "COMPLETED")
    await until(lambda: api.parts.surface.subscriptions.subscriber_count == 0)
    going_on.set()
    path = f"/api/responses/{begun['responseId']}/stream"
    async with open_stream(api.client, "GET", path, headers={"Last-Event-ID": first.last_id}) as second:
        await second.read_to_end()
    seen = [*first.seen, *second.seen]
    assert list(replies(seen).values()) == ["I look it up.", "And that is all."]
    assert [each.name for each in seen].count("init") == 1
    completed = [each for each in seen if each.name == "tool_call_update" and each.data["status"] == "COMPLETED"]
    assert len(completed) == 1
    assert second.seen[-1].name == "done"
    over = await api.get(path, headers={"Last-Event-ID": second.last_id})
    assert over.status_code == 204


async def test_from_every_event_on_the_rest_comes_once(api: Api, model: ScriptedModel) -> None:
    model.script = [ask_for(call(LOOK, text="x"), text="I look."), say("Here it is, word by word.")]
    async with open_reply_stream(api.client, "look") as stream:
        whole = await stream.read_to_end()
    path = f"/api/responses/{whole[0].data['responseId']}/stream"
    for place, told in enumerate(whole[:-1]):
        async with open_stream(api.client, "GET", path, headers={"Last-Event-ID": told.id}) as again:
            rest = await again.read_to_end()
        assert replies([*whole[: place + 1], *rest]) == replies(whole)
        assert [each.name for each in rest].count("done") == 1
        known = {(each.name, each.data["id"], each.data["status"]) for each in whole[: place + 1] if "id" in each.data}
        doubled = [
            each for each in rest if (each.name, each.data.get("id"), "COMPLETED") in known and "id" in each.data
        ]
        assert doubled == []


async def test_an_id_of_no_event_of_the_response_is_refused(api: Api, model: ScriptedModel) -> None:
    model.script = [say("hi")]
    async with open_reply_stream(api.client, "hello") as stream:
        seen = await stream.read_to_end()
    path = f"/api/responses/{seen[0].data['responseId']}/stream"
    for strange in ("nonsense", "a.r.0.00000000.", "x" * 5000, "é"):
        answer = await api.get(path, headers={"Last-Event-ID": strange.encode("latin-1")})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_such_event")


async def test_a_client_that_goes_away_stops_nothing(api: Api, model: ScriptedModel) -> None:
    going_on = asyncio.Event()

    async def slowly(_request: ModelRequest) -> Completion:
        await going_on.wait()
        return say("Done all the same.")

    model.script = [slowly]
    async with open_reply_stream(api.client, "take your time") as stream:
        turn = (await stream.until("init"))["responseId"]
    await until(lambda: api.parts.surface.subscriptions.subscriber_count == 0)
    going_on.set()
    async with open_stream(api.client, "GET", f"/api/responses/{turn}/stream") as again:
        seen = await again.read_to_end()
    assert (seen[0].name, seen[-1].data["text"]) == ("init", "Done all the same.")


async def test_two_clients_of_one_response_are_told_the_same(api: Api, model: ScriptedModel) -> None:
    going_on = asyncio.Event()

    async def slowly(_request: ModelRequest) -> Completion:
        await going_on.wait()
        return say("For both of you.")

    model.script = [slowly]
    async with open_reply_stream(api.client, "hello") as one:
        turn = (await one.until("init"))["responseId"]
        async with open_stream(api.client, "GET", f"/api/responses/{turn}/stream") as two:
            await two.until("init")
            going_on.set()
            seen = await asyncio.gather(one.read_to_end(), two.read_to_end())
    assert [list(replies(each).values()) for each in seen] == [["For both of you."]] * 2


async def test_a_stopped_response_is_incomplete(api: Api, model: ScriptedModel) -> None:
    async def never(_request: ModelRequest) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError

    model.script = [never]
    async with open_reply_stream(api.client, "hello", "stopping") as stream:
        turn = (await stream.until("init"))["responseId"]
        await until(lambda: bool(model.requests))
        stopped = await api.delete(f"/api/responses/{turn}")
        assert (stopped.status_code, stopped.json()) == (200, {"responseId": turn, "stopped": True})
        seen = await stream.read_to_end()
    assert seen[-1].data["status"] == "INCOMPLETE"
    assert (await api.delete(f"/api/responses/{turn}")).json()["stopped"] is False


async def test_a_response_that_fails_says_why(api: Api, model: ScriptedModel) -> None:
    model.script = [RuntimeError("secret detail")]
    async with open_reply_stream(api.client, "hello") as stream:
        seen = await stream.read_to_end()
    error, done = seen[-2], seen[-1]
    assert (error.name, error.data["code"]) == ("error", "response_failed")
    assert "secret detail" not in error.data["message"]
    assert (done.data["status"], done.data["error"]) == ("FAILED", error.data["message"])
    async with open_stream(
        api.client, "GET", f"/api/responses/{done.data['responseId']}/stream", headers={"Last-Event-ID": error.id}
    ) as again:
        assert [each.name for each in await again.read_to_end()] == ["done"]


async def test_without_a_stream_the_answer_comes_in_one_piece(api: Api, model: ScriptedModel) -> None:
    model.script = [say("In one piece.")]
    answer = await api.post(ASK, json=request_body("hello", stream=False, model="gpt-4", tools=[], temperature=1))
    assert (answer.status_code, answer.json()["text"]) == (200, "In one piece.")
    assert answer.json()["ignored"] == ["model", "temperature", "tools"]
    assert (await api.get(f"/api/responses/{answer.json()['responseId']}")).json()["text"] == "In one piece."


async def test_a_request_chooses_among_the_models_that_the_operator_allows(folder: Path, model: ScriptedModel) -> None:
    model.script = [say("Not asked.")]
    async with opened_api(folder, model=scripted_choice(model), api_models="demo") as api:
        answer = (await api.post(ASK, json=request_body("hello", stream=False, model="demo", top_p=1))).json()
        assert answer["ignored"] == ["top_p"]
        assert answer["text"]
        assert model.requests == []
        key = {"Idempotency-Key": "k-of-a-model"}
        first = await api.post(ASK, json=request_body("hello", stream=False, model="demo"), headers=key)
        again = await api.post(ASK, json=request_body("hello", stream=False, model="demo"), headers=key)
        assert first.json()["responseId"] == again.json()["responseId"]
        assert (await api.post(ASK, json=request_body("hello", stream=False), headers=key)).status_code == 409
        assert model.requests == []
        other = (await api.post(ASK, json=request_body("hello", stream=False, model="openai:gpt-9"))).json()
    assert (other["ignored"], other["text"]) == (["model"], "Not asked.")


async def test_without_a_stream_a_long_response_is_returned_as_it_stands(
    api: Api, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.web.api.responses.WAIT_SECONDS", 0.05)

    async def never(_request: ModelRequest) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError

    model.script = [never]
    answer = await api.post(ASK, json=request_body("hello", stream=False))
    assert (answer.status_code, answer.json()["status"] in ("CREATED", "STREAMING")) == (202, True)


async def test_a_question_that_is_sent_again_is_asked_once(api: Api, model: ScriptedModel) -> None:
    model.script = [say("Once.")]
    headers = {"Idempotency-Key": "order-17"}
    first = await api.post(ASK, json=request_body("hello", stream=False), headers=headers)
    second = await api.post(ASK, json=request_body("hello", stream=False), headers=headers)
    assert first.json()["responseId"] == second.json()["responseId"]
    assert len(model.requests) == 1
    async with open_stream(api.client, "POST", ASK, json=request_body("hello"), headers=headers) as stream:
        seen = await stream.read_to_end()
    assert (seen[0].data["redelivery"], seen[-1].data["text"]) == (True, "Once.")
    assert seen[0].data["conversationId"] == first.json()["conversationId"]
    async with open_stream(
        api.client, "POST", ASK, json=request_body("hello"), headers={**headers, "Last-Event-ID": seen[-2].id}
    ) as stream:
        assert [each.name for each in await stream.read_to_end()] == ["done"]
    taken_up = await api.post(ASK, json=request_body("hello"), headers={"Last-Event-ID": seen[-2].id})
    assert (taken_up.status_code, len(model.requests)) == (400, 1)
    other = await api.post(ASK, json=request_body("something else", stream=False), headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
    another = await api.token("ci", ApiRole.MEMBER)
    model.script = [say("Another's.")]
    own = await api.post(ASK, json=request_body("hello", stream=False), headers=headers, token=another)
    assert own.json()["text"] == "Another's."


async def test_earlier_messages_are_context_of_a_new_conversation_alone(api: Api, model: ScriptedModel) -> None:
    model.script = [say("Blue."), say("Still blue.")]
    body = {
        "conversationId": "colours",
        "payload": {
            "input": [
                {"role": "system", "content": "Answer in rhymes."},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
                {"role": "user", "content": [{"type": "input_text", "text": "Which colour?"}]},
            ],
            "stream": False,
        },
    }
    assert (await api.post(ASK, json=body)).json()["text"] == "Blue."
    told = words(model.requests[0])
    assert any("system: Answer in rhymes." in text and "not instructions" in text for text in told)
    assert told[-1] == "Which colour?"
    body["payload"]["input"][-1]["content"] = "And now?"  # type: ignore[index]
    assert (await api.post(ASK, json=body)).json()["text"] == "Still blue."
    assert not any("Answer in rhymes." in text for text in words(model.requests[1]))


async def test_an_image_in_the_request_reaches_the_model_and_is_forgotten(api: Api, model: ScriptedModel) -> None:
    model.capabilities = Capabilities(images=True)
    model.script = [say("A dot.")]
    picture = {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{base64.b64encode(GIF).decode()}"}}
    content = [{"type": "text", "text": "what is this?"}, picture]
    body = {"payload": {"messages": [{"role": "user", "content": content}], "stream": False}}
    assert (await api.post(ASK, json=body)).json()["text"] == "A dot."
    images = [
        part for message in model.requests[0].messages for part in message.parts if type(part).__name__ == "ImagePart"
    ]
    assert [part.data for part in images] == [GIF]  # type: ignore[union-attr]
    await until(lambda: api.parts.surface.uploads.size == 0)


def _pieces(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(pieces)}]}


async def test_an_invalid_question_is_refused_by_its_field(api: Api) -> None:
    user, assistant = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
    image = "payload.messages"
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "payload"),
        ({"messages": []}, "payload.messages"),
        ({"messages": [], "input": "x"}, "payload"),
        ({"input": "   "}, "payload.messages"),
        ({"messages": [assistant]}, "payload.messages"),
        ({"messages": [user, assistant]}, "payload.messages"),
        (_pieces({"type": "input_file", "file_id": "f"}), image),
        (_pieces({"type": "image_url", "image_url": "https://x/y.png"}), image),
        (_pieces({"type": "image_url", "image_url": "data:image/png;base64,a"}), image),
    ]
    for payload, field in cases:
        answer = await api.post(ASK, json={"payload": payload})
        assert answer.status_code == 422, payload
        assert field in answer.json()["error"]["fields"], payload
    answer = await api.post(ASK, json={**request_body("hello"), "conversationID": "x"})
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, ["conversationID"])


async def test_no_other_token_sees_follows_or_stops_a_response(api: Api, model: ScriptedModel) -> None:
    model.script = [say("Mine.")]
    one, two = await api.token("one", ApiRole.MEMBER), await api.token("two", ApiRole.APPROVER)
    elsewhere = await api.token("three", ApiRole.ADMIN, "slack:T1")
    turn = (await api.post(ASK, json=request_body("hello", stream=False), token=one)).json()["responseId"]
    for token in (two, elsewhere):
        for method, path in (("GET", ""), ("GET", "/stream"), ("DELETE", "")):
            answer = await api.request(method, f"/api/responses/{turn}{path}", token=token)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert (await api.get(f"/api/responses/{turn}")).status_code == 200
    assert (await api.get("/api/responses/nothing")).status_code == 404


async def test_a_slow_client_gets_the_newest_and_holds_up_no_other(api: Api, model: ScriptedModel) -> None:
    text = " ".join(f"{n:01000d}" for n in range(1_000))  # more than the buffers of the sockets hold
    model.script = [say(text)]
    async with open_reply_stream(api.client, "tell me a lot") as slow:
        turn = (await slow.until("init"))["responseId"]
        async with open_stream(api.client, "GET", f"/api/responses/{turn}/stream") as quick:
            await quick.read_to_end()
        seen = await slow.read_to_end()
    assert list(replies(seen).values()) == [text]
    assert seen[-1].name == "done"


async def test_a_call_that_came_to_nothing_is_run_once_more_with_a_fresh_approval(
    api: Api, model: ScriptedModel
) -> None:
    model.script = [ask_for(call(WRITE, text="hello")), say("Not written.")]
    answer = await api.post(ASK, json=request_body("write it", stream=False))
    first = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/api/responses/{first['responseId']}")
    assert (first["waitingForApproval"], len(first["approvals"])) == (True, 1)
    denied = await api.post(
        f"/api/responses/approval/{first['approvals'][0]['approvalRequestId']}", json={"approved": False}
    )
    assert denied.json()["outcome"] == "denied"
    async with open_stream(api.client, "GET", f"/api/responses/{first['responseId']}/stream") as stream:
        await stream.read_to_end()
    path = f"/api/responses/{first['responseId']}/calls/2"
    other = await api.token("other", ApiRole.ADMIN)
    assert (await api.post(f"{path}/again", token=other)).status_code == 404
    assert (await api.post(f"{path}/check")).status_code == 404  # the call certainly did not run
    assert (await api.post(f"{path}/forget")).status_code == 422
    again = await api.post(f"{path}/again")
    assert again.status_code == 202
    assert (await api.post(f"{path}/again")).json()["responseId"] == again.json()["responseId"]
    async with open_stream(api.client, "GET", f"{again.headers['location']}/stream") as stream:
        wanted = await stream.until("approval_required")
        await api.post(f"/api/responses/approval/{wanted['approvalRequestId']}", json={"approved": True})
        assert (await stream.read_to_end())[-1].data["text"] == "done it"


async def test_a_quiet_stream_shows_that_it_is_alive_and_closes_its_source_when_it_is_left() -> None:
    closed = asyncio.Event()

    async def events() -> AsyncGenerator[ServerEvent, None]:
        try:
            yield ServerEvent("init", {"text": "a\nb\u2028"}, "1")
            await asyncio.Event().wait()
        finally:
            closed.set()

    pieces = EventStream(events(), heartbeat=0.01).body_iterator
    assert isinstance(pieces, AsyncGenerator)
    async with asyncio.timeout(PATIENCE), aclosing(pieces):
        assert await anext(pieces) == b"retry: 2000\n\n"
        assert await anext(pieces) == b'id: 1\nevent: init\ndata: {"text":"a\\nb\\u2028"}\n\n'
        assert [await anext(pieces), await anext(pieces)] == [b": still here\n\n"] * 2
    assert closed.is_set()


async def test_streams_end_when_the_program_leaves_and_the_answer_is_there_when_it_is_back(folder: Path) -> None:
    async def never(_request: ModelRequest) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError

    begun = asyncio.Event()

    async def read(client: httpx2.AsyncClient) -> Stream:
        async with open_reply_stream(client, "hello") as stream:
            await stream.until("init")
            begun.set()
            await stream.read_to_end()
        return stream

    async with httpx2.AsyncClient(timeout=30) as client:
        async with opened_api(folder, model=scripted_choice(ScriptedModel([never]))) as api:
            client.base_url = api.client.base_url
            reading = asyncio.create_task(read(client))
            await begun.wait()
        stream = await reading
    turn = stream.seen[0].data["responseId"]
    async with (
        opened_api(folder, model=scripted_choice(ScriptedModel([say("Here I am again.")]))) as back,
        open_stream(
            back.client, "GET", f"/api/responses/{turn}/stream", headers={"Last-Event-ID": stream.last_id}
        ) as again,
    ):
        seen = await again.read_to_end()
    assert (seen[-1].name, seen[-1].data["text"]) == ("done", "Here I am again.")


async def test_a_question_beyond_those_that_may_wait_is_refused(folder: Path, model: ScriptedModel) -> None:
    async def for_ever(_request: ModelRequest) -> Completion:
        await asyncio.Event().wait()
        return say("")

    model.script = [for_ever]
    limits: dict[str, Any] = {"max_running_turns_per_user": 1, "max_queued_turns_per_user": 1}
    async with opened_api(folder, model=scripted_choice(model), **limits) as api:
        async with open_reply_stream(api.client, "one", "a") as first, open_reply_stream(api.client, "two", "b"):
            await first.until("init")
            picture = {"type": "image_url", "image_url": f"data:image/gif;base64,{base64.b64encode(GIF).decode()}"}
            answer = await api.post(ASK, json={"payload": _pieces({"type": "text", "text": "three"}, picture)})
            assert api.parts.surface.uploads.size == 0
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], answer.headers["Retry-After"]) == (429, "queue_full", "5")
        assert error["message"].startswith("This message was not accepted: 1 of your messages is waiting already")
        assert (await api.get("/api/conversations/c")).status_code == 404
