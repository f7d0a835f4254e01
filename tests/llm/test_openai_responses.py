"""Particulars of the Responses API: items, and reasoning that only the service can read."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from bot.domain.completions import Completion, ModelRequest, ReasoningDelta, StopReason, TextDelta, Usage
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
from bot.domain.tools import Tool
from bot.errors import ContextTooLong, ModelRejected, ModelUnavailable
from bot.llm import openai_responses
from bot.llm.openai_responses import request_body
from tests.fakes.llm import Bytes, Raw, Reply, Say, Status
from tests.fakes.llm_responses import encrypt_reasoning
from tests.llm.conversation import ANTHROPIC, KEY, MODEL, OPENAI_RESPONSES, asking, complete, events, talking
from tests.llm.envelopes import within

PNG = b"\x89PNG"
CLOCK = Tool("clock__now", "clock", "now", input_schema={})
RESPONSES = partial(talking, OPENAI_RESPONSES)


def added_event(index: int | None = 0, **item: Any) -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.added", **place, "item": item}


def done(index: int | None = 0, **item: Any) -> dict[str, Any]:
    return {**added_event(index, **item), "type": "response.output_item.done"}


def text_event(delta: str, index: int | None = 0) -> dict[str, Any]:
    place = {} if index is None else {"output_index": index}
    return {"type": "response.output_text.delta", **place, "delta": delta}


def end_event(status: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **response}}


def sent_body(*messages: Message, tools: tuple[Tool, ...] = (), own_address: bool = False) -> dict[str, Any]:
    return request_body(MODEL, ModelRequest(messages, tools), own_address=own_address)


# The reply


async def test_reasoning_goes_back_unread_and_in_its_place() -> None:
    thoughts = [
        {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": encrypt_reasoning(str(n))}
        for n in range(2)
    ]
    stream = (
        added_event(0, type="reasoning", id="rs_0", summary=[], encrypted_content=""),
        done(0, **thoughts[0], status="completed"),
        added_event(1, type="message", role="assistant", content=[], phase="commentary"),
        text_event("I look.", 1),
        done(1, type="message", role="assistant", content=[{"type": "output_text", "text": "I look."}]),
        done(2, **thoughts[1]),
        done(3, type="function_call", call_id="call_a", name="clock__now", arguments='{"n": 1}'),
        end_event(),
    )
    async with RESPONSES(Raw(stream), Say("Done.")) as (model, service):
        reply = (await complete(model, asking(tools=(CLOCK,)))).message
        results = tool_results(ToolResult("call_a", (TextPart("1"),)))
        await complete(model, asking(user("?"), reply, results, tools=(CLOCK,)))
    assert service.refusals == []
    *before, output = service.requests[1].messages[1:]
    assert before == [
        thoughts[0],
        {"role": "assistant", "content": "I look.", "phase": "commentary"},
        thoughts[1],
        {"type": "function_call", "call_id": "call_a", "name": "clock__now", "arguments": '{"n": 1}'},
    ]
    assert (output["type"], output["call_id"]) == ("function_call_output", "call_a")
    assert within(output["output"], "clock__now") == "1"


async def test_nothing_is_stored_and_reasoning_is_asked_for_and_left_out_if_it_led_to_nothing() -> None:
    async with RESPONSES(Say("", thinking="Hm.", stop=StopReason.LENGTH), Say("Yes.")) as (model, service):
        completion = await complete(model)
        await complete(model, asking(user("?"), completion.message, user("Go on.")))
    assert completion.stop is StopReason.LENGTH
    assert service.refusals == []
    body = service.requests[0].body
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])


async def test_reasoning_of_another_model_or_provider_is_not_sent() -> None:
    async with RESPONSES(Say("Yes.", thinking="Hm.")) as (model, _):
        reply = (await complete(model)).message
    body = request_body("another-model", ModelRequest((user("?"), reply, user("Sure?"))), own_address=True)
    assert [item.get("type") for item in body["input"]] == [None, None, None]
    async with talking(ANTHROPIC, Say("Fine.")) as (model, service):
        await complete(model, asking(user("?"), reply, user("Sure?")))
    assert service.requests[0].messages[1]["content"] == [{"type": "text", "text": "Yes."}]


async def test_a_model_that_does_not_reason_is_asked_again_without_it_and_remembered() -> None:
    refusal = Status(
        400, "Encrypted content is not supported with this model.", "invalid_request_error", None, "include"
    )
    async with RESPONSES(refusal, Say("Hi."), Say("Again.")) as (model, service):
        assert (await complete(model)).message.text == "Hi."
        assert (await complete(model)).message.text == "Again."
    assert ["include" in request.body for request in service.requests] == [True, False, False]


async def test_a_refusal_is_text_with_its_own_stop() -> None:
    stream = (
        added_event(0, type="message", role="assistant", content=[]),
        {"type": "response.refusal.delta", "output_index": 0, "delta": "I will not."},
        end_event(),
    )
    async with RESPONSES(Raw(stream)) as (model, _):
        completion = await complete(model)
    assert completion.message == assistant("I will not.")
    assert completion.stop is StopReason.REFUSED


async def test_summaries_of_reasoning_are_kept_apart() -> None:
    def summary_event(kind: str, n: int, **more: Any) -> dict[str, Any]:
        return {"type": f"response.reasoning_summary_{kind}", "output_index": 0, "summary_index": n, **more}

    stream = (
        summary_event("part.added", 0),
        summary_event("text.delta", 0, delta="One."),
        summary_event("part.added", 1),
        summary_event("text.delta", 1, delta="Two."),
        end_event(),
    )
    async with RESPONSES(Raw(stream)) as (model, _):
        *deltas, _ = await events(model)
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "One.\n\nTwo."


async def test_servers_that_do_not_stream_or_number_their_items_are_understood() -> None:
    stream = (
        added_event(None, type="message", role="assistant"),
        text_event("It ", None),
        text_event("rains.", None),
        done(None, type="message", content=[{"type": "output_text", "text": "It rains."}]),
        added_event(None, type="function_call", call_id="a", name="look"),
        {"type": "response.function_call_arguments.delta", "delta": '{"n": '},
        {"type": "response.function_call_arguments.delta", "delta": "1}"},
        end_event(),
    )
    async with RESPONSES(Raw(stream)) as (model, _):
        assert (await complete(model)).message == assistant("It rains.", ToolCall("a", "look", {"n": 1}))
    whole = done(0, type="message", content=[{"type": "output_text", "text": "Rain."}])
    async with RESPONSES(Raw((whole, end_event()))) as (model, _):
        first, last = await events(model)
    assert first == TextDelta("Rain.")
    assert isinstance(last, Completion)
    assert last.message == assistant("Rain.")


@pytest.mark.parametrize("index", [0, None])
async def test_items_that_share_a_number_or_have_none_are_all_kept(index: int | None) -> None:
    def call(n: int) -> dict[str, Any]:
        item = {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "look"}
        return {**item, "arguments": f'{{"n": {n}}}'}

    def fragment(n: int) -> dict[str, Any]:
        place = {} if index is None else {"output_index": index}
        return {
            "type": "response.function_call_arguments.delta",
            **place,
            "item_id": f"fc_{n}",
            "delta": f'{{"n": {n}}}',
        }

    stream = (
        added_event(index, type="message", id="msg_1"),
        text_event("I look.", index),
        done(index, type="message", id="msg_1", content=[{"type": "output_text", "text": "I look."}]),
        added_event(index, **{**call(1), "arguments": ""}),
        added_event(index, **{**call(2), "arguments": ""}),
        fragment(2),
        fragment(1),
        done(index, **call(1)),
        done(index, **call(2)),
        done(index, **call(2)),
        end_event(),
    )
    async with RESPONSES(Raw(stream)) as (model, _):
        message = (await complete(model)).message
    assert message == assistant("I look.", ToolCall("c1", "look", {"n": 1}), ToolCall("c2", "look", {"n": 2}))


@pytest.mark.parametrize("arguments", [{"n": 1}, '{"n": 1}'])
async def test_arguments_are_a_text_or_an_object(arguments: object) -> None:
    item = done(0, type="function_call", call_id="a", name="look", arguments=arguments)
    async with RESPONSES(Raw((item, end_event()))) as (model, _):
        assert (await complete(model)).message.tool_calls == (ToolCall("a", "look", {"n": 1}),)


OUTPUT = [
    {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
    {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
]


async def test_items_may_be_told_at_the_end_alone() -> None:
    async with RESPONSES(Raw((text_event("I look."), end_event(output=OUTPUT)))) as (model, _):
        assert (await complete(model)).message == assistant("I look.", ToolCall("a", "look"))


async def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = {"object": "response", "status": "completed", "output": OUTPUT, "usage": {"input_tokens": 3}}
    body = Bytes((json.dumps(whole).encode(),), headers={"content-type": "application/json"})
    async with RESPONSES(body) as (model, _):
        *deltas, last = await events(model)
    assert deltas == [TextDelta("I look.")]
    assert last == Completion(assistant("I look.", ToolCall("a", "look")), StopReason.TOOLS, Usage(3))


async def test_a_reply_that_says_too_little_of_its_end_is_not_taken_for_complete() -> None:
    call = done(0, type="function_call", call_id="a", name="look", arguments="{}")
    async with RESPONSES(Raw((call, {"type": "response.incomplete"}))) as (model, _):
        completion = await complete(model)
    assert (completion.stop, completion.message.tool_calls) == (StopReason.LENGTH, ())


async def test_reasoning_without_an_id_goes_back_without_one() -> None:
    thought = done(0, type="reasoning", summary=[], encrypted_content=encrypt_reasoning("Hm."))
    async with RESPONSES(Raw((thought, text_event("Yes.", 1), end_event())), Say("Fine.")) as (model, service):
        reply = (await complete(model)).message
        await complete(model, asking(user("?"), reply, user("Sure?")))
    assert service.requests[1].messages[1] == {
        "type": "reasoning",
        "summary": [],
        "encrypted_content": encrypt_reasoning("Hm."),
    }


@pytest.mark.parametrize(
    ("details", "stop"),
    [
        ({"reason": "max_output_tokens"}, StopReason.LENGTH),
        ({"reason": "content_filter"}, StopReason.REFUSED),
        ({"reason": "something_new"}, StopReason.LENGTH),
        (None, StopReason.LENGTH),
    ],
)
async def test_an_incomplete_reply_names_its_cause(details: object, stop: StopReason) -> None:
    async with RESPONSES(Raw((text_event("Hm."), end_event("incomplete", incomplete_details=details)))) as (model, _):
        assert (await complete(model)).stop is stop


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (end_event("failed", error={"code": "server_error", "message": "Oh."}), ModelUnavailable, "Oh."),
        (
            end_event("failed", error={"code": "rate_limit_exceeded", "message": "Slow."}),
            ModelUnavailable,
            "asked too much",
        ),
        (end_event("failed", error={"code": "context_length_exceeded", "message": "Big."}), ContextTooLong, "Big."),
        (end_event("failed", error={"code": "invalid_prompt", "message": "Bad."}), ModelRejected, "this content"),
        (end_event("failed", error=None), ModelUnavailable, "has a problem"),
        *(
            (
                {"type": "response.completed", "response": {"status": status, "error": {"message": "Oh."}}},
                ModelUnavailable,
                "Oh",
            )
            for status in ("failed", "cancelled")
        ),
        ({"type": "error", "code": "insufficient_quota", "message": "Gone."}, ModelRejected, "paid first"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "Odd."}}, ModelRejected, "Odd."),
        ({"error": {"code": 400, "message": "Odd."}}, ModelRejected, "Odd."),
    ],
)
async def test_a_failed_reply_says_why(event: dict[str, Any], kind: type[Exception], words: str) -> None:
    async with RESPONSES(Raw((text_event("Ra"), event))) as (model, _):
        with pytest.raises(kind, match=words):
            await events(model)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "response.output_text.delta", "output_index": "0", "delta": 7},
        {"type": "response.output_text.delta", "output_index": 5, "delta": None},
        {"type": "response.output_item.added", "item": "text"},
        {"type": "response.output_item.done", "output_index": 9, "item": {"type": 7, "content": "x"}},
        {"type": "response.output_item.done", "output_index": 9, "item": {"type": "reasoning", "summary": 7}},
        {"type": "response.something_new", "item": {}},
        {"type": ["response.completed"]},
        {"type": "error_of_another_kind", "error": "odd"},
    ],
)
async def test_fields_of_another_kind_are_passed_over(odd: dict[str, Any]) -> None:
    async with RESPONSES(Raw((odd, text_event("Rain.", 1), end_event(usage="much")))) as (model, _):
        completion = await complete(model)
    assert completion.message.text == "Rain."
    assert completion.usage == Usage()


async def test_tokens_are_counted_with_cached_and_reasoning_ones() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
    }
    async with RESPONSES(Raw((end_event(usage=usage),))) as (model, _):
        assert (await complete(model)).usage == Usage(100, 20, 60, 30, 15)


# The request


def test_instructions_come_first_and_later_notes_in_their_place() -> None:
    body = sent_body(system("A"), system(" "), system("B"), user("Hi"), system("C"), own_address=True)
    assert body["instructions"] == "A\n\nB"
    assert body["input"] == [{"role": "user", "content": "Hi"}, {"role": "developer", "content": "C"}]


def test_requests_that_begin_alike_have_the_same_cache_key() -> None:
    def key(*messages: Message, tools: tuple[Tool, ...] = (CLOCK,)) -> str:
        return str(sent_body(*messages, tools=tools, own_address=True)["prompt_cache_key"])

    first = key(system("A"), user("One"))
    assert first == key(system("A"), user("One"), assistant("1"), user("Two"))
    assert first != key(system("B"), user("One"))
    assert first != key(system("A"), user("One"), tools=(replace(CLOCK, name="clock__then"),))
    assert len(first) <= 64


def test_compatible_servers_get_no_fields_of_the_vendor_alone() -> None:
    assert not {"prompt_cache_key", "stream_options"} & sent_body(user("Hi")).keys()


def test_images_and_documents_go_as_they_are_also_those_of_tools() -> None:
    image, document = ImagePart(PNG, "image/png"), FilePart(b"%PDF", "application/pdf", "plan.pdf")
    table = FilePart(b"a", "text/csv", "a.csv")
    body = sent_body(
        Message(MessageRole.USER, (TextPart("These?"), image, document, table)),
        assistant("", ToolCall("c", "look"), ToolCall("d", "look")),
        tool_results(ToolResult("c", (TextPart("Seen:"), image), is_error=True), ToolResult("d", (), is_error=True)),
    )
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"}
    question, _, _, seen, empty = body["input"]
    assert question["content"] == [
        {"type": "input_text", "text": "These?"},
        picture,
        {"type": "input_file", "filename": "plan.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_text", "text": "[File: a.csv (text/csv)]"},
    ]
    error, opening, shown, closing = seen["output"]
    assert (error["text"], shown) == ("Error:", picture)
    assert within(f"{opening['text']}\n{closing['text']}", "look") == "Seen:"
    assert within(empty["output"].removeprefix("Error: "), "look") == "(empty)"


@pytest.mark.parametrize(
    "kept",
    [None, [], {}, {"model": MODEL, "reasoning": 7, "phase": 7}, {"model": MODEL, "reasoning": [{"before": "x"}, 7]}],
)
def test_metadata_of_another_shape_is_passed_over(kept: object) -> None:
    reply = replace(assistant("Yes."), provider_metadata={"openai": kept})
    assert sent_body(user("?"), reply)["input"][1:] == [{"role": "assistant", "content": "Yes."}]


def test_the_service_writes_no_less_than_it_must() -> None:
    request = ModelRequest((user("Hi"),))
    few = replace(request, limits=replace(request.limits, max_tokens=1))
    assert request_body(MODEL, few, own_address=True)["max_output_tokens"] == 16


def test_the_vendors_models_see_images_and_documents() -> None:
    capabilities = openai_responses.create(openai_responses.Config(MODEL, KEY)).capabilities
    assert (capabilities.images, capabilities.documents) == (True, True)


async def test_a_tool_that_is_refused_is_named() -> None:
    reply: Reply = Status(
        400, "Invalid schema.", "invalid_request_error", "invalid_function_parameters", "tools[1].parameters"
    )
    tools = (CLOCK, replace(CLOCK, name="clock__then"))
    async with RESPONSES(reply) as (model, _):
        with pytest.raises(ModelRejected) as caught:
            await complete(model, asking(tools=tools))
    assert caught.value.tool == "clock__then"
