"""The fake service must be as strict as the real ones, or an adapter's mistakes would not show."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.fakes.llm import Api, Call, FakeLanguageModel, Request, Say

Json = dict[str, Any]

HI = {"role": "user", "content": "Hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "c", "content": "1"}
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "1"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


ITEM = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
PATHS = {"openai": "/chat/completions", "responses": "/responses", "anthropic": "/v1/messages"}


def post(api: Api, service: FakeLanguageModel, **body: Any) -> httpx2.Response:
    path = PATHS[api]
    headers = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
    basic = {"model": "m", ("input" if api == "responses" else "messages"): [HI], "stream": True}
    basic |= {"max_tokens": 9} if api == "anthropic" else {}
    return httpx2.post(service.base_url + path, headers=headers, json={**basic, **body}, trust_env=False)


REFUSED: dict[Api, list[tuple[str, Json]]] = {
    "openai": [
        ("did not have response messages: c", {"messages": [HI, ASKS]}),
        ("must be followed by tool messages", {"messages": [HI, ASKS, HI, ANSWER]}),
        ("must be a response to a preceeding message", {"messages": [HI, ANSWER]}),
        ("does not match pattern", {"tools": [{"type": "function", "function": {"name": "a.b"}}]}),
        ("got 'type: \"None\"'", {"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}),
        ("expected a string", {"tools": [{"type": "function", "function": {"name": "a", "description": None}}]}),
        (
            "maximum length 1024",
            {"tools": [{"type": "function", "function": {"name": "a", "description": "x" * 1025}}]},
        ),
        ("array too long", {"tools": [{"type": "function", "function": {"name": f"t{n}"}} for n in range(129)]}),
        ("too short", {"tools": []}),
        ("only allowed when 'tools'", {"tool_choice": "none"}),
        ("got null", {"messages": [HI, {"role": "assistant", "content": None}]}),
        ("at the same time", {"max_tokens": 1, "max_completion_tokens": 1}),
        ("maximum length 40", {"messages": [HI, {**ASKS, "tool_calls": [{**CALL, "id": "x" * 41}]}]}),
        ("Image URLs", {"messages": [HI, ASKS, {**ANSWER, "content": [{"type": "image_url"}]}]}),
    ],
    "responses": [
        ("No tool output found for function call c", {"input": [HI, ITEM]}),
        ("No tool call found", {"input": [HI, OUTPUT]}),
        ("Duplicate function call", {"input": [HI, ITEM, ITEM, OUTPUT]}),
        ("without its required following item", {"input": [HI, REASONING]}),
        ("without its required following item", {"input": [HI, REASONING, HI]}),
        ("could not be verified", {"input": [HI, {**REASONING, "encrypted_content": "x"}, ITEM, OUTPUT]}),
        ("Unknown parameter: 'messages'", {"messages": [HI]}),
        ("integer below minimum value", {"max_output_tokens": 9}),
        ("must be specified with 'tools'", {"tool_choice": "none"}),
        ("Missing required parameter: 'tools[0].name'", {"tools": [TOOL]}),
        ("in strict mode", {"tools": [{**FUNCTION, "strict": True}]}),
        ("Invalid value: 'text'", {"input": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}),
        ("Invalid value: 'tool'", {"input": [{"role": "tool", "content": "a"}]}),
        ("Missing required parameter: 'input'", {"input": []}),
    ],
    "anthropic": [
        ("without `tool_result` blocks", {"messages": [HI, USES]}),
        ("without `tool_result` blocks", {"messages": [HI, USES, HI]}),
        (
            "must come first",
            {"messages": [HI, USES, {"role": "user", "content": [{"type": "text", "text": "a"}, RESULT]}]},
        ),
        ("unexpected `tool_use_id`", {"messages": [{"role": "user", "content": [RESULT]}]}),
        ("roles must alternate", {"messages": [HI, HI]}),
        ("roles must alternate", {"messages": [{"role": "assistant", "content": "Hi"}]}),
        ("non-whitespace", {"messages": [{"role": "user", "content": " "}]}),
        ("non-whitespace", {"system": [{"type": "text", "text": ""}]}),
        ("must not be empty", {"messages": [{"role": "user", "content": []}]}),
        ("should match pattern", {"tools": [{"name": "a.b", "input_schema": {"type": "object"}}]}),
        ("input_schema.type", {"tools": [{"name": "a", "input_schema": {}}]}),
        ("while providing tools", {"tool_choice": {"type": "none"}}),
        ("temperature: Extra inputs", {"temperature": 0}),
        ("max_tokens", {"max_tokens": 0}),
        (
            "cannot be `thinking`",
            {
                "messages": [
                    HI,
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": "a", "signature": "b"}]},
                ]
            },
        ),
    ],
}


@pytest.mark.parametrize(
    ("api", "problem", "body"), [(api, *refusal) for api, refusals in REFUSED.items() for refusal in refusals]
)
def test_it_refuses_the_same_requests_as_the_vendor(api: Api, problem: str, body: Json) -> None:
    with FakeLanguageModel(api) as service:
        response = post(api, service, **body)
    assert response.status_code == 400
    assert problem in service.refusals[0]
    assert service.refusals == [response.json()["error"]["message"]]


def test_chat_completions_streams_the_vendors_events() -> None:
    with FakeLanguageModel("openai", Say("Hi", (Call("look", {"n": 1}, id="c"),), pieces=1)) as service:
        response = post("openai", service, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert len(lines) == 7
    assert '"role": "assistant"' in lines[0]
    assert '"name": "look"' in lines[2]
    assert '"choices": []' in lines[5]
    assert lines[6] == "data: [DONE]"


def test_responses_streams_the_vendors_events() -> None:
    with FakeLanguageModel("responses", Say("Hi", (Call("look"),), thinking="Hm", pieces=1)) as service:
        response = post("responses", service)
    names = [line.removeprefix("event: response.") for line in response.text.split("\n") if line.startswith("event: ")]
    added, done = "output_item.added", "output_item.done"
    thought = [f"reasoning_summary_{each}" for each in ("part.added", "text.delta", "text.done", "part.done")]
    said = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
    called = ["function_call_arguments.delta", "function_call_arguments.done"]
    items = [name for events in (thought, said, called) for name in (added, *events, done)]
    assert names == ["created", "in_progress", *items, "completed"]


def test_messages_streams_the_vendors_events() -> None:
    with FakeLanguageModel("anthropic", Say("Hi", (Call("look"),), thinking="Hm", pieces=1)) as service:
        response = post("anthropic", service)
    names = [line.removeprefix("event: ") for line in response.text.split("\n") if line.startswith("event: ")]
    block = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    text = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", "ping", *block, *text, *block, "message_delta", "message_stop"]


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic"])
def test_a_rule_answers_when_the_script_is_used_up(api: Api) -> None:
    def rule(request: Request) -> Say:
        return Say(f"{request.question} {request.tool_names} {request.results}", pieces=1)

    asked: dict[Api, tuple[Json, Json]] = {
        "openai": (TOOL, {"messages": [HI, ASKS, ANSWER]}),
        "responses": (FUNCTION, {"input": [HI, ITEM, OUTPUT]}),
        "anthropic": (
            {"name": "look", "input_schema": {"type": "object"}},
            {"messages": [HI, USES, {"role": "user", "content": [RESULT]}]},
        ),
    }
    tool, transcript = asked[api]
    with FakeLanguageModel(api, Say("From the script.", pieces=1), rule=rule) as service:
        assert "From the" in post(api, service).text
        assert "Hi ('look',) ('1',)" in post(api, service, tools=[tool], **transcript).text


def test_a_request_without_a_reply_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="no reply"), FakeLanguageModel("openai") as service:
        assert post("openai", service).status_code == 400


def test_a_rule_that_fails_fails_the_test() -> None:
    def rule(request: Request) -> Say:
        raise KeyError(request.api)

    with (
        pytest.raises(AssertionError, match="KeyError"),
        FakeLanguageModel("openai", rule=rule) as service,
        pytest.raises(httpx2.TransportError),
    ):
        post("openai", service)


def test_a_request_without_a_key_is_refused() -> None:
    with FakeLanguageModel("openai") as service:
        response = httpx2.post(f"{service.base_url}/chat/completions", json={}, trust_env=False)
    assert response.status_code == 401
