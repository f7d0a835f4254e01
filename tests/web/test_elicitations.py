"""Answers to elicitations over HTTP: only the token of the turn's author may give them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from bot.domain.api_clients import ApiRole
from tests.fakes.mcp.endpoint import result
from tests.fakes.parts import ScriptedModel, ask_for, call, say
from tests.web.api_server import ADMIN_TOKEN, Api, opened_api, scripted_choice
from tests.web.streams import open_reply_stream
from tests.web.test_approvals import becomes_done

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "minLength": 3}, "copies": {"type": "integer", "default": 1}},
    "required": ["title"],
}
FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "Which?", "requestedSchema": SCHEMA}}
URL = "https://jira.example.com/consent?id=7"
LINK = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Consent, please.", "url": URL, "elicitationId": "e1"},
}
POLICY = '[[rules]]\npolicy = "ALWAYS_ALLOW"\nserver = "fake"\n'


@asynccontextmanager
async def asking(folder: Path, *asked: dict[str, Any]) -> AsyncIterator[Api]:
    """Yield the API of a bot whose model calls a tool. The tool requests input once and then returns "ok"."""
    (folder / "policy.toml").write_text(POLICY, encoding="utf-8")
    model = ScriptedModel([ask_for(call("fake__write")), say("Done.")])
    questions = {f"q{number}": each for number, each in enumerate(asked, 1)}

    def answer_call(message: dict[str, Any]) -> Any:
        if "inputResponses" in message["params"]:
            return result(message, {"content": [{"type": "text", "text": "ok"}]})
        return result(message, {"resultType": "input_required", "inputRequests": questions, "requestState": "s-1"})

    async with opened_api(folder, model=scripted_choice(model)) as api:
        api.endpoint.on["tools/call"] = answer_call
        yield api


async def ask_and_wait(api: Api, token: str = ADMIN_TOKEN) -> dict[str, Any]:
    """Send a message and return its response, which waits for an answer to an elicitation."""
    body = {"payload": {"input": "write it", "stream": False}}
    answer = await api.post("/api/responses/stream", json=body, token=token)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    assert (found["waitingForAnswer"], found["waitingForApproval"]) == (True, False)
    return found


async def post_answer(
    api: Api, question: dict[str, Any], token: str = ADMIN_TOKEN, /, **said: Any
) -> tuple[int, dict[str, Any]]:
    answer = await api.post(f"/api/responses/elicitation/{question['elicitationId']}", json=said, token=token)
    return answer.status_code, answer.json()


def received_answers(api: Api) -> list[Any]:
    """Return the answers that the server received, by the ids that it gave its requests."""
    calls = [message["params"] for _, message in api.endpoint.seen if message.get("method") == "tools/call"]
    return [each["inputResponses"] for each in calls if "inputResponses" in each]


async def test_a_form_is_answered_by_the_token_that_asked(folder: Path) -> None:
    async with asking(folder, FORM) as api:
        found = await ask_and_wait(api)
        (question,) = found["elicitations"]
        assert (question["server"], question["tool"], question["message"], question["mode"]) == (
            "fake",
            "write",
            "Which?",
            "form",
        )
        assert (question["requestedSchema"], question["url"], question["action"]) == (SCHEMA, None, None)
        assert found["toolCalls"][0]["waitingForAnswer"]
        path = f"/api/responses/elicitation/{question['elicitationId']}"
        assert (await api.get(path)).json() == {**question, "expiresAt": (await api.get(path)).json()["expiresAt"]}
        status, body = await post_answer(api, question, action="accept", content={"title": "Milk", "copies": 2})
        assert (status, body) == (200, {"elicitationId": question["elicitationId"], "action": "accept"})
        done = await becomes_done(api, found)
        assert (done["text"], done["elicitations"], done["waitingForAnswer"]) == ("Done.", [], False)
        assert received_answers(api) == [{"q1": {"action": "accept", "content": {"title": "Milk", "copies": 2}}}]
        status, body = await post_answer(api, question, action="decline")
        assert (status, body["error"]["code"]) == (409, "already_settled")
        assert (await api.get(path)).status_code == 409


async def test_invalid_answers_are_named_by_field_and_asked_again(folder: Path) -> None:
    async with asking(folder, FORM) as api:
        found = await ask_and_wait(api)
        (question,) = found["elicitations"]
        status, body = await post_answer(api, question, action="accept", content={"title": "M"})
        assert (status, list(body["error"]["fields"])) == (422, ["content.title"])
        assert (await post_answer(api, question, action="accept"))[0] == 422
        assert (await post_answer(api, question, action="decline", content={"title": "Milk"}))[0] == 422
        assert (await post_answer(api, question, action="maybe"))[0] == 422
        assert received_answers(api) == []
        assert (await post_answer(api, question, action="cancel"))[1]["action"] == "cancel"
        await becomes_done(api, found)
        assert received_answers(api) == [{"q1": {"action": "cancel"}}]


async def test_a_link_is_told_to_the_token_that_asked_alone(folder: Path) -> None:
    async with asking(folder, LINK) as api:
        member = await api.token("ci", ApiRole.MEMBER)
        found = await ask_and_wait(api, member)
        (question,) = found["elicitations"]
        assert (question["mode"], question["url"], question["domain"]) == ("url", URL, "jira.example.com")
        seen = (await api.get(f"/api/responses/{found['responseId']}")).json()["elicitations"][0]
        assert (seen["url"], seen["domain"]) == (None, "jira.example.com")
        assert (await post_answer(api, question, member, action="accept", content={"a": 1}))[0] == 422
        assert (await post_answer(api, question, member, action="accept"))[0] == 200
        await becomes_done(api, found)
        assert received_answers(api) == [{"q1": {"action": "accept"}}]


async def test_another_token_answers_nothing(folder: Path) -> None:
    async with asking(folder, FORM) as api:
        asker, other = await api.token("ci", ApiRole.MEMBER), await api.token("other", ApiRole.ADMIN)
        found = await ask_and_wait(api, asker)
        (question,) = found["elicitations"]
        for token in (other, ADMIN_TOKEN):
            status, body = await post_answer(api, question, token, action="decline")
            assert (status, body["error"]["code"]) == (403, "not_allowed")
            assert (
                await api.get(f"/api/responses/elicitation/{question['elicitationId']}", token=token)
            ).status_code == 403
        assert received_answers(api) == []
        assert (await post_answer(api, question, asker, action="decline"))[0] == 200
        await becomes_done(api, found)


async def test_an_unknown_question_is_not_found(folder: Path) -> None:
    async with asking(folder, FORM) as api:
        status, body = await post_answer(api, {"elicitationId": "no-such"}, action="decline")
        assert (status, body["error"]["code"]) == (404, "not_found")
        assert (await api.get("/api/responses/elicitation/no-such")).status_code == 404


async def test_a_stream_has_the_question_and_its_end(folder: Path) -> None:
    async with asking(folder, FORM, LINK) as api:
        async with open_reply_stream(api.client, "write it") as stream:
            questions = [await stream.until("elicitation_required") for _ in range(2)]
            for question in questions:
                content = {"content": {"title": "Milk"}} if question["mode"] == "form" else {}
                assert (await post_answer(api, question, action="accept", **content))[0] == 200
            seen = await stream.read_to_end()
        assert [(question["mode"], question["url"]) for question in questions] == [("form", None), ("url", URL)]
        settled = [each.data for each in seen if each.name == "elicitation_settled"]
        assert [each["action"] for each in settled] == ["accept", "accept"]
        assert "Milk" not in str(settled)
        # An answered turn is queued before it resumes, and a stream may report this state.
        # The turn may also have reached the elicitation before the first event of the stream.
        waits = [each.data["waitingForAnswer"] for each in seen if each.name in ("init", "conversation_status")]
        assert [waiting for waiting, _ in groupby(waits)][-2:] == [True, False]
        assert received_answers(api) == [
            {"q1": {"action": "accept", "content": {"title": "Milk"}}, "q2": {"action": "accept"}}
        ]


async def test_a_form_that_asks_for_a_secret_is_declined_and_shown_to_no_user(folder: Path) -> None:
    secret = {"type": "object", "properties": {"password": {"type": "string"}}}
    form = {**FORM, "params": {**FORM["params"], "requestedSchema": secret}}  # type: ignore[dict-item]
    async with asking(folder, form) as api:
        body = {"payload": {"input": "write it", "stream": False}}
        answer = await api.post("/api/responses/stream", json=body)
        assert (answer.status_code, answer.json()["text"]) == (200, "Done.")
        assert received_answers(api) == [{"q1": {"action": "decline"}}]
