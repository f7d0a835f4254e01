"""Chat Completions as compatible servers implement it, and particulars of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bot.domain.completions import Completion, ModelLimits, ModelRequest, ReasoningDelta, StopReason, TextDelta, Usage
from bot.domain.messages import (
    FilePart,
    ImagePart,
    Message,
    MessageRole,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
    system,
    tool_results,
    user,
)
from bot.errors import ModelRejected, ModelUnavailable
from bot.llm import openai_chat
from bot.llm.openai_chat import request_body
from tests.fakes.llm import Bytes, ErrorEvent, Raw, Reply, Say, Status
from tests.llm.conversation import KEY, MODEL, OPENAI_CHAT, Provider, asking, complete, events, talking
from tests.llm.envelopes import within

PNG = b"\x89PNG"
SEEING = Provider(
    "openai",
    "OPENAI",
    lambda address: openai_chat.create(openai_chat.Config(MODEL, KEY, base_url=address, images=True)),
)


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def part(name: str = "", text: str = "", **more: Any) -> dict[str, Any]:
    return {**more, "function": {**({"name": name} if name else {}), "arguments": text}}


async def calls_of(*fragments: dict[str, Any], finish: str = "tool_calls") -> list[tuple[str, str, dict[str, Any]]]:
    """Return the calls made of tool call fragments, each in a chunk of its own."""
    chunks = [chunk({"tool_calls": [fragment]}) for fragment in fragments]
    async with talking(OPENAI_CHAT, Raw((*chunks, chunk({}, finish), "[DONE]"))) as (model, _):
        completion = await complete(model)
    assert completion.stop is StopReason.TOOLS
    return [(call.id, call.name, dict(call.arguments)) for call in completion.message.tool_calls]


FIRST, BOTH = [("a", "look", {"n": 1})], [("a", "look", {"n": 1}), ("b", "look", {"n": 2})]
FRAGMENTS: dict[str, tuple[tuple[dict[str, Any], ...], list[tuple[str, str, dict[str, Any]]]]] = {
    "told apart by their ids": (
        (part("look", '{"n": ', id="a"), part("", "1}", id="a"), part("look", '{"n": 2}', id="b")),
        BOTH,
    ),
    "whole calls without index and id": (
        (part("look", '{"n": 1}'), part("look", '{"n": 2}')),
        [("call_1", "look", {"n": 1}), ("call_2", "look", {"n": 2})],
    ),
    "one index": ((part("look", '{"n": 1}', index=0, id="a"), part("look", '{"n": 2}', index=0, id="b")), BOTH),
    "a new id with every fragment": ((part("look", '{"n"', index=0, id="a"), part("", ": 1}", index=0, id="b")), FIRST),
    "a repeated name": ((part("look", '{"n"', index=0, id="a"), part("look", ": 1}", index=0, id="a")), FIRST),
    "two calls that take turns": (
        (
            *(part("look", "", index=0, id="a"), part("look", "", index=1, id="b")),
            *(part("", '{"n": 1', index=0), part("", '{"n": 2}', index=1), part("", "}", index=0)),
        ),
        BOTH,
    ),
    "an object in place of its text": (({"id": "a", "function": {"name": "look", "arguments": {"n": 1}}},), FIRST),
    "an empty object": (({"id": "a", "function": {"name": "look", "arguments": {}}},), [("a", "look", {})]),
}


@pytest.mark.parametrize("name", FRAGMENTS)
async def test_fragments_become_the_calls_that_they_belong_to(name: str) -> None:
    fragments, calls = FRAGMENTS[name]
    assert await calls_of(*fragments) == calls


@pytest.mark.parametrize("ids", [{}, {"id": ""}, {"id": None}])
@pytest.mark.parametrize("second", ["look", "list"])
async def test_calls_that_share_an_index_without_ids_are_told_apart(ids: dict[str, Any], second: str) -> None:
    calls = await calls_of(
        part("look", '{"n": ', index=0, **ids), part("", "1}", index=0), part(second, '{"n": 2}', index=0, **ids)
    )
    assert calls == [("call_1", "look", {"n": 1}), ("call_2", second, {"n": 2})]


async def test_an_id_given_twice_is_made_unique() -> None:
    calls = await calls_of(part("one", "", index=0, id="same"), part("two", "", index=1, id="same"))
    assert [name for _, name, _ in calls] == ["one", "two"]
    assert len({call_id for call_id, _, _ in calls}) == 2


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "eos"])
async def test_calls_decide_with_any_finish_reason(finish: str) -> None:
    assert await calls_of(part("look", "{}", index=0, id="a"), finish=finish) == [("a", "look", {})]


@pytest.mark.parametrize("arguments", [[1], 7, False])
async def test_arguments_of_another_kind_are_never_taken_for_none(arguments: Any) -> None:
    fragment = {"index": 0, "id": "a", "function": {"name": "look", "arguments": arguments}}
    chunks = (chunk({"tool_calls": [fragment]}), chunk({}, "tool_calls"))
    async with talking(OPENAI_CHAT, Raw(chunks)) as (model, _):
        (call,) = (await complete(model)).message.tool_calls
    assert call.unreadable


async def test_a_server_that_does_not_stream_is_understood() -> None:
    said = {"role": "assistant", "content": "I look.", "tool_calls": [part("look", '{"n": 1}', id="a")]}
    whole = {"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    body = Bytes((json.dumps(whole, indent=1).encode(),), headers={"content-type": "application/json"})
    async with talking(OPENAI_CHAT, body) as (model, _):
        *deltas, last = await events(model)
    assert deltas == [TextDelta("I look.")]
    assert isinstance(last, Completion)
    assert last == Completion(assistant("I look.", ToolCall("a", "look", {"n": 1})), StopReason.TOOLS, Usage(3))


async def test_content_may_come_in_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    chunks = (
        chunk({"content": [thinking]}),
        chunk({"content": [{"type": "text", "text": "Ra"}, {"type": "reference", "reference_ids": [1]}]}),
        chunk({"content": "in."}, "stop"),
    )
    async with talking(OPENAI_CHAT, Raw(chunks)) as (model, _):
        *deltas, last = await events(model)
    assert isinstance(last, Completion)
    assert last.message == assistant("Rain.")
    assert deltas[0] == ReasoningDelta("Hm.")


@pytest.mark.parametrize(
    ("delta", "whole"),
    [
        ({"content": "Rain."}, True),
        ({"tool_calls": [part("look", '{"n": 1}', index=0, id="a")]}, True),
        ({"tool_calls": [part("look", "", index=0, id="a")]}, True),
        ({"tool_calls": [part("look", '{"n": ', index=0, id="a")]}, False),
        ({"reasoning": "Hm."}, False),
        ({}, False),
    ],
)
async def test_an_end_without_a_reason_is_one_if_the_reply_is_whole(delta: dict[str, Any], whole: bool) -> None:
    async with talking(OPENAI_CHAT, Raw((chunk(delta), "[DONE]"))) as (model, _):
        if whole:
            completion = await complete(model)
            assert completion.stop is (StopReason.TOOLS if "tool_calls" in delta else StopReason.ANSWERED)
        else:
            with pytest.raises(ModelUnavailable, match="cut off"):
                await events(model)


@pytest.mark.parametrize(
    "reply",
    [
        Status(400, "Failed to call a function.", "invalid_request_error", "tool_use_failed"),
        Raw((chunk({}, "function_call_filter: MALFORMED_FUNCTION_CALL"), "[DONE]")),
    ],
)
async def test_a_service_that_cannot_read_its_models_call_is_asked_again(reply: Reply) -> None:
    async with talking(OPENAI_CHAT, reply) as (model, _):
        with pytest.raises(ModelUnavailable, match="cannot read the tool call") as caught:
            await events(model)
    assert caught.value.retry_after == 0.0


BUSY = {
    "index": 0,
    "delta": {"content": ""},
    "finish_reason": "error",
    "error": {"code": 429, "message": "It is busy."},
}


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        *((Raw((chunk({"content": "Ra"}, end), "[DONE]")), ModelUnavailable, "cut off") for end in ("error", "abort")),
        (Raw(({"choices": [BUSY]},)), ModelUnavailable, r"asked too much \(429\): It is busy"),
        (Status(429, "Too much.", "insufficient_quota", code="insufficient_quota"), ModelRejected, "credit"),
        (Status(413, "Request too large.", "tokens", code="rate_limit_exceeded"), ModelRejected, "Request too large"),
        (Status(400, "That is long.", code="context_length_exceeded"), ModelRejected, "new conversation"),
        (ErrorEvent("BadRequestError", code=400), ModelRejected, "service"),
        (ErrorEvent("InternalServerError", code=500), ModelUnavailable, "service"),
        (ErrorEvent("server_error", code=None), ModelUnavailable, "service"),
        (ErrorEvent("requests", code="rate_limit_exceeded"), ModelUnavailable, "service"),
        (ErrorEvent("odd", code=7), ModelUnavailable, "service"),
        (Raw(({"error": {"type": {"a": 1}, "message": ["odd"], "code": [7]}},)), ModelUnavailable, "service"),
        (Raw(({"error": "odd"},)), ModelUnavailable, "service"),
    ],
)
async def test_an_error_is_read_by_its_code_wherever_it_is(reply: Reply, kind: type[Exception], words: str) -> None:
    async with talking(OPENAI_CHAT, reply) as (model, _):
        with pytest.raises(kind, match=words):
            await events(model)


@pytest.mark.parametrize("finish", ["length", "model_length", "max_tokens"])
async def test_a_reply_that_is_cut_short_says_so_with_any_reason(finish: str) -> None:
    fragment = part("look", '{"n"', index=0, id="a")
    async with talking(OPENAI_CHAT, Raw((chunk({"tool_calls": [fragment]}, finish),))) as (model, _):
        completion = await complete(model)
    assert (completion.stop, completion.message.tool_calls) == (StopReason.LENGTH, ())


DETAILS = [
    {"type": "reasoning.text", "text": "I lo", "index": 0, "format": "a", "signature": None},
    {"type": "reasoning.text", "text": "ok.", "index": 0, "signature": "sig"},
    {"type": "reasoning.encrypted", "data": "opaque==", "index": 1},
    {"type": "reasoning.encrypted", "data": "other==", "index": 1},
]
KEPT = [
    {"type": "reasoning.text", "text": "I look.", "index": 0, "format": "a", "signature": "sig"},
    {"type": "reasoning.encrypted", "data": "opaque==", "index": 1},
    {"type": "reasoning.encrypted", "data": "other==", "index": 1},
]


async def test_reasoning_before_calls_goes_back_with_their_results_and_no_longer() -> None:
    chunks = (
        *(chunk({"reasoning_content": thought}) for thought in ("I lo", "ok.")),
        *(chunk({"reasoning_details": [detail]}) for detail in DETAILS),
        chunk({"tool_calls": [part("look", "{}", index=0, id="a")]}, "tool_calls"),
    )
    async with talking(OPENAI_CHAT, Raw(chunks), Say("One."), Say("Two.")) as (model, service):
        reply = (await complete(model)).message
        results = tool_results(ToolResult("a", (TextPart("seen"),)))
        await complete(model, asking(user("?"), reply, results, system("Be brief.")))
        await complete(model, asking(user("?"), reply, results, assistant("One."), user("And now?")))
    _, sent, *_ = service.requests[1].messages
    assert sent["reasoning_content"] == "I look."
    assert sent["reasoning_details"] == KEPT
    assert "reasoning" not in json.dumps(service.requests[2].body)


async def test_a_server_that_does_not_want_reasoning_back_is_asked_without_it() -> None:
    chunks = (chunk({"reasoning": "Hm."}), chunk({"tool_calls": [part("look", "{}", index=0, id="a")]}, "stop"))
    refusal = Status(400, "messages.1.reasoning: Extra inputs are not permitted")
    async with talking(OPENAI_CHAT, Raw(chunks), refusal, Say("Fine.")) as (model, service):
        reply = (await complete(model)).message
        results = tool_results(ToolResult("a", (TextPart("seen"),)))
        assert (await complete(model, asking(user("?"), reply, results))).message.text == "Fine."
    assert ["reasoning" in request.messages[-2] for request in service.requests[1:]] == [True, False]


@pytest.mark.parametrize("names", [("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content")])
async def test_reasoning_is_understood_under_both_its_names_and_shown_once(names: tuple[str, ...]) -> None:
    chunks = (chunk(dict.fromkeys(names, "Hm.")), chunk({"content": "Yes."}, "stop"))
    async with talking(OPENAI_CHAT, Raw(chunks)) as (model, _):
        assert (await events(model))[:-1] == [ReasoningDelta("Hm."), TextDelta("Yes.")]


async def test_a_refusal_is_text_with_its_own_stop() -> None:
    async with talking(OPENAI_CHAT, Raw((chunk({"refusal": "I will not."}), chunk({}, "stop")))) as (model, _):
        completion = await complete(model)
    assert completion.message == assistant("I will not.")
    assert completion.stop is StopReason.REFUSED


async def test_missing_and_null_fields_are_tolerated() -> None:
    chunks = (
        {"choices": None},
        {"choices": [{"index": 0}]},
        chunk(None),
        chunk({"content": None, "tool_calls": None}),
        chunk({"content": 7, "tool_calls": []}),
        chunk({"content": "Rain."}),
        chunk(None, "stop", usage={"prompt_tokens": 3, "completion_tokens": None, "prompt_tokens_details": None}),
    )
    async with talking(OPENAI_CHAT, Raw(chunks)) as (model, _):
        completion = await complete(model)
    assert completion.message == assistant("Rain.")
    assert completion.usage == Usage(3, 0, 0)


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": 5, "usage": "much"},
        {"choices": {"a": 1}, "usage": {"prompt_tokens": "7", "prompt_tokens_details": 7}},
        {"choices": ["text", 7, None, {"delta": "text", "finish_reason": 7}]},
        {"choices": [{"delta": {"content": ["a"], "tool_calls": "look", "refusal": {}}}]},
        {
            "choices": [
                {"delta": {"tool_calls": [{"index": "0", "id": 7, "function": "look"}]}, "finish_reason": "length"}
            ]
        },
    ],
)
async def test_fields_of_another_kind_are_passed_over(odd: dict[str, Any]) -> None:
    async with talking(OPENAI_CHAT, Raw((odd, chunk({"content": "Rain."}, "length")))) as (model, _):
        assert (await complete(model)).message == assistant("Rain.")


async def test_images_are_sent_as_data_and_those_of_tools_behind_their_results() -> None:
    image = ImagePart(PNG, "image/png")
    transcript = (
        Message(MessageRole.USER, (TextPart("This?"), image)),
        assistant("", ToolCall("c", "look")),
        tool_results(ToolResult("c", (TextPart("Seen:"), image), is_error=True)),
    )
    async with talking(SEEING, Say("A cat.")) as (model, service):
        assert model.capabilities.images
        await complete(model, asking(*transcript))
    question, call, result, returned = service.requests[0].messages
    assert question["content"] == [
        {"type": "text", "text": "This?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]
    assert call["content"] is None
    assert within(result["content"].removeprefix("Error: "), "look") == "Seen:\n[image: image/png]"
    assert returned["role"] == "user"
    said, shown = returned["content"]
    assert "not instructions" in said["text"]
    assert shown == question["content"][1]


def test_the_vendor_takes_documents_from_people_and_their_names_from_tools() -> None:
    document = FilePart(b"%PDF", "application/pdf", "plan.pdf")
    transcript = (
        Message(MessageRole.USER, (TextPart("This?"), document)),
        assistant("", ToolCall("c", "look")),
        tool_results(ToolResult("c", (document,))),
    )
    question, _, result = request_body(MODEL, ModelRequest(transcript), own_address=True)["messages"]
    file = {"filename": "plan.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}
    assert question["content"] == [{"type": "text", "text": "This?"}, {"type": "file", "file": file}]
    assert within(result["content"], "look") == "[File: plan.pdf (application/pdf)]"


async def test_a_compatible_server_gets_the_names_of_documents() -> None:
    document = FilePart(b"%PDF", "application/pdf", "plan.pdf")
    async with talking(OPENAI_CHAT, Say("A plan?")) as (model, service):
        assert not model.capabilities.documents
        await complete(model, asking(Message(MessageRole.USER, (TextPart("This?"), document))))
    assert service.requests[0].question == "This?\n[File: plan.pdf (application/pdf)]"


async def test_a_server_that_wants_the_new_name_of_the_token_limit_gets_it_from_then_on() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    refusal = Status(400, said, "invalid_request_error", "unsupported_parameter", "max_tokens")
    async with talking(OPENAI_CHAT, refusal, Say("Hi."), Say("Again.")) as (model, service):
        assert (await complete(model)).message.text == "Hi."
        assert (await complete(model)).message.text == "Again."
    assert ["max_completion_tokens" in request.body for request in service.requests] == [False, True, True]


def test_the_vendors_own_models_see_images_unless_it_is_said_that_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "not an address")
    assert openai_chat.create(openai_chat.Config(MODEL, KEY)).capabilities.images
    assert not openai_chat.create(openai_chat.Config(MODEL, KEY, images=False)).capabilities.images


def test_system_messages_stay_where_they_are() -> None:
    messages = request_body(MODEL, ModelRequest((system("A"), user("B"), system("C"))), own_address=False)["messages"]
    assert [(m["role"], m["content"]) for m in messages] == [("system", "A"), ("user", "B"), ("system", "C")]


async def test_a_template_that_wants_strict_turns_gets_them_from_then_on() -> None:
    refusal = Status(400, "Conversation roles must alternate user/assistant/user/assistant/...", "BadRequestError")
    image = ImagePart(PNG, "image/png")
    transcript = (
        system("You help."),
        assistant("Before."),
        user("One"),
        Message(MessageRole.USER, (TextPart("Two"), image)),
        assistant("", ToolCall("a", "look")),
        tool_results(ToolResult("a", (TextPart("seen"),))),
        system("Be brief."),
        assistant("Yes."),
        assistant("And no."),
        user("Why?"),
    )
    async with talking(SEEING, refusal, Say("So."), Say("Again.")) as (model, service):
        assert (await complete(model, asking(*transcript))).message.text == "So."
        await complete(model, asking(*transcript))
    assert service.refusals == []
    first, again = service.requests[1:]
    assert first.messages == again.messages
    roles = [message["role"] for message in first.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert first.messages[0]["content"] == "You help.\n\nBe brief."
    assert [part["type"] for part in first.messages[3]["content"]] == ["text", "text", "image_url"]
    assert first.messages[6]["content"] == "Yes.\n\nAnd no."


async def test_a_template_without_a_system_role_gets_the_prompt_as_the_users_from_then_on() -> None:
    refusal = Status(500, "Jinja Exception: System role not supported", "BadRequestError")
    async with talking(SEEING, refusal, Say("So."), Say("Again.")) as (model, service):
        assert (await complete(model, asking(system("You help."), user("Why?")))).message.text == "So."
        await complete(model, asking(system("You help."), user("Why?")))
    first, again = service.requests[1:]
    assert first.messages == again.messages == [{"role": "user", "content": "You help.\n\nWhy?"}]


def test_the_vendor_knows_the_token_limit_by_another_name() -> None:
    request = ModelRequest((user("Hi"),), limits=ModelLimits(max_tokens=9))
    body = request_body(MODEL, request, own_address=True)
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body
    assert body["stream_options"] == {"include_usage": True}


async def test_a_server_without_keys_is_asked_without_a_key() -> None:
    async with talking(OPENAI_CHAT, Say("Hi.")) as (_, service):
        model = openai_chat.create(openai_chat.Config(MODEL, "", base_url=service.base_url))
        assert (await complete(model)).message.text == "Hi."
        await model.close()


def test_a_configuration_does_not_show_its_key() -> None:
    assert KEY not in repr(openai_chat.Config(MODEL, KEY))
