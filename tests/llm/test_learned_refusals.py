"""What a service refuses is left out, remembered for its model, and set by the operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.completions import ModelLimits, StopReason
from bot.domain.messages import (
    ImagePart,
    Message,
    MessageRole,
    TextPart,
    ToolResult,
    assistant,
    system,
    tool_results,
    user,
)
from bot.errors import ModelError
from bot.llm import anthropic, openai_chat, openai_responses
from bot.llm.provider_service import ErrorKind
from tests.fakes.llm import Call, Raw, Request, Say, Status
from tests.llm.conversation import EACH_PROVIDER, KEY, MODEL, OPENAI_CHAT, Provider, asking, complete, events, talking

PNG = b"\x89PNG\r\n\x1a\n"
IMAGE = Message(MessageRole.USER, (TextPart("What is this?"), ImagePart(PNG, "image/png", "cat.png")))
MODULES: Mapping[str, Any] = {"openai": openai_chat, "responses": openai_responses, "anthropic": anthropic}
UNSEEING = Status(400, "Invalid content type. image_url is only supported by certain models.", "invalid_request_error")


def configured_provider(provider: Provider, model: str = MODEL, **settings: Any) -> Provider:
    module = MODULES[provider.api]
    return replace(provider, create=lambda url: module.create(module.Config(model, KEY, base_url=url, **settings)))


def sees(request: Request) -> bool:
    return "base64" in json.dumps(request.body)


@EACH_PROVIDER
async def test_a_model_that_sees_no_images_is_remembered(provider: Provider) -> None:
    async with talking(provider, UNSEEING, Say("A cat?"), Say("Again?")) as (model, service):
        before = model.capabilities
        assert (await complete(model, asking(IMAGE))).message.text == "A cat?"
        assert (before.images, model.capabilities.images) == (True, False)
        await complete(model, asking(IMAGE))
        assert [sees(request) for request in service.requests] == [True, False, False]
        assert "[image: cat.png]" in json.dumps(service.requests[2].body)


@EACH_PROVIDER
@pytest.mark.parametrize("images", [True, False])
async def test_a_setting_says_whether_images_are_sent(provider: Provider, images: bool) -> None:
    refusals: tuple[Status, ...] = (UNSEEING,) if images else ()
    async with talking(configured_provider(provider, images=images), *refusals, Say("A cat.")) as (model, service):
        await complete(model, asking(IMAGE))
        assert model.capabilities.images is images
        assert sees(service.requests[0]) is images


@EACH_PROVIDER
async def test_a_refusal_is_no_reason_to_send_no_images_if_the_rest_is_refused_too(provider: Provider) -> None:
    async with talking(provider, UNSEEING, UNSEEING) as (model, _):
        with pytest.raises(ModelError):
            await events(model, asking(IMAGE))
        assert model.capabilities.images


@EACH_PROVIDER
@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("max_tokens is too large: 8192. This model supports at most 4,096 completion tokens, not 8192.", 4_096),
        ("max_tokens: 8192 > 2048, which is the maximum allowed number of output tokens for m", 2_048),
        ("max_tokens is too large", 4_096),
    ],
)
async def test_the_longest_reply_is_learned(provider: Provider, message: str, tokens: int) -> None:
    async with talking(provider, Status(400, message), Say("Yes."), rule=lambda _: Say("Yes.")) as (model, service):
        request = replace(asking(), limits=ModelLimits(max_tokens=8_192))
        await complete(model, request)
        assert model.capabilities.output_tokens == model.capabilities.largest_output == tokens
        assert tokens in service.requests[1].body.values()


def test_the_usual_room_is_larger_than_reasoning_takes() -> None:
    for module in MODULES.values():
        at_home, elsewhere = (module.create(module.Config(MODEL, KEY, base_url=url)) for url in (None, "http://h/v1"))
        assert at_home.capabilities.output_tokens > elsewhere.capabilities.output_tokens > 4_096
        assert module.create(module.Config(MODEL, KEY, max_tokens=700)).capabilities.output_tokens == 700


EFFORTS: list[tuple[str, str, list[Any]]] = [
    ("openai", "high", [{"reasoning_effort": "high"}, {}, {}]),
    ("openai", "off", [{"reasoning_effort": "none"}, {"reasoning_effort": "minimal"}, {}]),
    ("responses", "low", [{"reasoning": {"effort": "low"}}, {}, {}]),
    ("responses", "off", [{"reasoning": {"effort": "none"}}, {"reasoning": {"effort": "minimal"}}, {}]),
    (
        "anthropic",
        "medium",
        [
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
            {},
        ],
    ),
    ("anthropic", "off", [{"thinking": {"type": "disabled"}}, {}, {}]),
]


@pytest.mark.parametrize(("api", "reasoning", "forms"), EFFORTS)
def test_the_effort_of_reasoning_has_the_form_that_the_service_takes(
    api: str, reasoning: str, forms: list[dict[str, Any]]
) -> None:
    refused: list[Any] = [(), ("EFFORT",), ("EFFORT", "NO_EFFORT")]
    for known, form in zip(refused, forms, strict=True):
        kinds = [ErrorKind[name] for name in known]
        body = MODULES[api].request_body(MODEL, asking(), kinds, own_address=True, reasoning=reasoning)
        fields = ("reasoning_effort", "reasoning", "thinking", "output_config")
        assert {name: body[name] for name in fields if name in body} == form


@pytest.mark.parametrize(
    ("refusal", "field", "settings"),
    [
        (
            Status(422, body=json.dumps({"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs"}]})),
            "stream_options",
            {},
        ),
        (
            Status(400, "Unrecognized request argument supplied: reasoning_effort"),
            "reasoning_effort",
            {"reasoning": "low"},
        ),
    ],
)
async def test_a_refused_field_is_left_out_from_then_on(refusal: Status, field: str, settings: dict[str, Any]) -> None:
    async with talking(configured_provider(OPENAI_CHAT, **settings), refusal, Say("One."), Say("Two.")) as (
        model,
        service,
    ):
        await complete(model)
        await complete(model)
        assert [field in request.body for request in service.requests] == [True, False, False]


@pytest.mark.parametrize(("name", "marked"), [("anthropic/claude-sonnet-5-5", True), ("openai/gpt-5.5", False)])
async def test_claude_behind_another_service_is_cached(name: str, marked: bool) -> None:
    request = replace(asking(system("Help."), user("Hi"), assistant("Hello"), user("So?")), stable_messages=3)
    refusal = Status(400, "messages.0.content.0.cache_control: Extra inputs are not permitted")
    async with talking(configured_provider(OPENAI_CHAT, name), Say("."), refusal, Say("."), Say(".")) as (
        model,
        service,
    ):
        await complete(model, request)
        marks = ["cache_control" in json.dumps(message) for message in service.requests[0].messages]
        assert marks == ([True, False, True, True] if marked else [False] * 4)
        if marked:
            await complete(model, request)
            await complete(model, request)
            assert ["cache_control" in json.dumps(asked.body) for asked in service.requests[1:]] == [True, False, False]


EXTRA = {"google": {"thought_signature": "c2ln"}}


async def gemini(*fragments: dict[str, Any]) -> Raw:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}]} for part in fragments]
    return Raw((*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}, "[DONE]"))


async def test_unknown_fields_of_a_call_go_back_as_they_came() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{", "x": 1}, "extra_content": EXTRA}
    rest = {"index": 0, "function": {"arguments": "}"}, "extra_content": {"google": {"other": [1]}}}
    second = {"index": 1, "id": "b", "function": {"name": "look", "arguments": "{}"}}
    reply = await gemini(first, rest, second)
    async with talking(OPENAI_CHAT, reply, Say("Done.")) as (model, service):
        message = (await complete(model)).message
        stored = replace(message, provider_metadata=json.loads(json.dumps(message.provider_metadata)))
        results = tool_results(*(ToolResult(call.id, (TextPart("1"),)) for call in message.tool_calls))
        await complete(model, asking(user("?"), stored, results, user("And then?")))
        one, other = service.requests[1].messages[1]["tool_calls"]
    assert one["extra_content"] == {"google": {"thought_signature": "c2ln", "other": [1]}}
    assert one["function"] == {"name": "look", "arguments": "{}", "x": 1}
    assert other == {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    async with talking(configured_provider(OPENAI_CHAT, "another-model"), Say("Done.")) as (model, service):
        await complete(model, asking(user("?"), stored, results))
        assert "thought_signature" not in json.dumps(service.requests[0].body)


@EACH_PROVIDER
async def test_a_reply_that_ends_within_a_call_says_so(provider: Provider) -> None:
    cut = Say("I look.", (Call("look", '{"n": '),), stop=StopReason.LENGTH)
    async with talking(provider, cut, Say("Half", stop=StopReason.LENGTH)) as (model, _):
        assert (await complete(model)).lacks_room
        assert not (await complete(model)).lacks_room
