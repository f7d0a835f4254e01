"""Contract of every language model of a service."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from bot.domain.completions import (
    Completion,
    ModelLimits,
    ModelRequest,
    ReasoningDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
    ToolChoice,
    Usage,
    UsageReported,
)
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
from tests.fakes.llm import (
    Call,
    FakeLanguageModel,
    Gate,
    Hold,
    Say,
    Tokens,
)
from tests.llm.conversation import (
    EACH_PROVIDER,
    KEY,
    MODEL,
    Provider,
    asking,
    complete,
    events,
    everything,
    next_seen,
    talking,
)

pytestmark = EACH_PROVIDER

WEATHER = Tool(
    "weather__get",
    "weather",
    "get",
    description="Today's weather.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
BARE = Tool("clock__now", "clock", "now", input_schema={})
PNG = b"\x89PNG\r\n\x1a\n"


# Content of a reply


async def test_text_arrives_as_it_is_written_and_one_completion_comes_last(provider: Provider) -> None:
    async with talking(provider, Say("Rain in the morning.", pieces=4)) as (model, _):
        *deltas, last = await events(model)
    assert 1 <= len(deltas) <= 4  # text that arrives together is one event
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Rain in the morning."
    assert last == Completion(assistant("Rain in the morning."), StopReason.ANSWERED, Usage(25, 7, 0))


async def test_a_delta_can_be_read_before_the_reply_is_finished(provider: Provider) -> None:
    gate = Gate()
    async with talking(provider, Hold(Say("Rain.", pieces=1), gate)) as (model, _):
        stream = model.stream(asking())
        assert await asyncio.wait_for(next_seen(stream), 30) == TextDelta("Rain.")
        gate.open()
        assert isinstance(await asyncio.wait_for(next_seen(stream), 30), Completion)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_thoughts_are_told_apart_from_the_answer(provider: Provider) -> None:
    async with talking(provider, Say("Rain.", thinking="Clouds, so…", pieces=1)) as (model, _):
        *deltas, last = await events(model)
    assert deltas == [ReasoningDelta("Clouds, so…"), TextDelta("Rain.")]
    assert isinstance(last, Completion)
    assert last.message.text == "Rain."


async def test_an_empty_answer_is_an_answer(provider: Provider) -> None:
    async with talking(provider, Say("")) as (model, _):
        assert await events(model) == [
            Completion(Message(MessageRole.ASSISTANT, ()), StopReason.ANSWERED, Usage(25, 7))
        ]


async def test_usage_counts_cached_tokens_among_the_input(provider: Provider) -> None:
    async with talking(provider, Say("Hi.", tokens=Tokens(input=900, output=12, cached=800))) as (model, _):
        assert (await complete(model)).usage == Usage(900, 12, 800)


async def test_missing_usage_is_no_error(provider: Provider) -> None:
    async with talking(provider, Say("Hi.", tokens=None)) as (model, _):
        assert (await complete(model)).usage == Usage()


async def test_the_begin_of_a_reply_is_reported_with_the_usage_until_then(provider: Provider) -> None:
    async with talking(provider, Say("Rain.", tokens=Tokens(input=900, output=12, cached=800))) as (model, _):
        first, *_ = await everything(model)
    assert isinstance(first, UsageReported)
    assert first.usage == (Usage(900, 1, 800) if provider.api == "anthropic" else Usage())


async def test_usage_counted_at_the_end_is_reported_before_the_completion(provider: Provider) -> None:
    async with talking(provider, Say("Rain.", tokens=Tokens(input=900, output=12, cached=800))) as (model, _):
        said = await everything(model)
    counted = [event.usage for event in said if isinstance(event, UsageReported)]
    if provider.api != "responses":  # the Responses API reports usage only with the completion
        assert counted[-1] == Usage(900, 12, 800)


async def test_arguments_are_told_as_they_are_written(provider: Provider) -> None:
    async with talking(provider, Say(calls=(Call("weather__get", {"city": "Oslo"}),), pieces=3)) as (model, _):
        said = await everything(model, asking(tools=(WEATHER,)))
    assert json.loads("".join(event.text for event in said if isinstance(event, ToolCallDelta))) == {"city": "Oslo"}


async def test_half_a_surrogate_pair_is_replaced(provider: Provider) -> None:
    async with talking(provider, Say("a\ud83db", pieces=1)) as (model, _):
        completion = await complete(model)
    assert completion.message.text == "a\ufffdb"


# Calls


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000])
async def test_calls_are_joined_from_pieces_of_any_size(provider: Provider, pieces: int) -> None:
    calls = (Call("weather__get", {"city": "Malmö", "days": [1, 2]}), Call("clock__now"))
    async with talking(provider, Say("Let me look.", calls, pieces=pieces)) as (model, _):
        completion = await complete(model, asking(tools=(WEATHER, BARE)))
    first, second = completion.message.tool_calls
    assert (first.name, first.arguments) == ("weather__get", {"city": "Malmö", "days": [1, 2]})
    assert (second.name, second.arguments, second.unreadable) == ("clock__now", {}, "")
    assert first.id != second.id
    assert completion.message.text == "Let me look."
    assert completion.stop is StopReason.TOOLS


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Os',
        '["Oslo"]',
        '"Oslo"',
        "7",
        '"\\"Oslo\\""',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud83d"}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
async def test_arguments_that_are_no_json_object_are_unreadable_and_never_guessed(
    provider: Provider, text: str
) -> None:
    async with talking(provider, Say(calls=(Call("weather__get", text),))) as (model, _):
        completion = await complete(model, asking(tools=(WEATHER,)))
    (call,) = completion.message.tool_calls
    assert call.arguments == {}
    assert call.unreadable
    assert text.startswith(call.unreadable)
    assert len(call.unreadable) <= 2000


@pytest.mark.parametrize("text", ["", "  ", "{}", "null", '"null"', '""', '"{}"'])
async def test_no_text_and_null_mean_no_arguments(provider: Provider, text: str) -> None:
    async with talking(provider, Say(calls=(Call("clock__now", text),))) as (model, _):
        (call,) = (await complete(model)).message.tool_calls
    assert (call.arguments, call.unreadable) == ({}, "")


@pytest.mark.parametrize("times", [1, 2])
async def test_arguments_that_are_encoded_twice_are_read(provider: Provider, times: int) -> None:
    text = json.dumps({"city": "Malmö"})
    for _ in range(times):
        text = json.dumps(text)
    async with talking(provider, Say(calls=(Call("weather__get", text),))) as (model, _):
        (call,) = (await complete(model)).message.tool_calls
    assert (call.arguments, call.unreadable) == ({"city": "Malmö"}, "")


async def test_calls_count_even_if_the_service_says_it_has_answered(provider: Provider) -> None:
    async with talking(provider, Say(calls=(Call("clock__now"),), stop=StopReason.ANSWERED)) as (model, _):
        completion = await complete(model)
    assert completion.stop is StopReason.TOOLS
    assert len(completion.message.tool_calls) == 1


async def test_a_service_that_announces_calls_and_makes_none_has_answered(provider: Provider) -> None:
    async with talking(provider, Say("Rain.", stop=StopReason.TOOLS)) as (model, _):
        assert (await complete(model)).stop is StopReason.ANSWERED


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.REFUSED])
async def test_a_reply_that_was_cut_short_asks_for_nothing(provider: Provider, stop: StopReason) -> None:
    calls = (Call("weather__get", {"city": "Oslo"}), Call("weather__get", '{"city": "Be'))
    async with talking(provider, Say("I was about to", calls, stop=stop)) as (model, _):
        completion = await complete(model)
    assert completion.stop is stop
    assert completion.message == assistant("I was about to")


# Requests


async def test_a_whole_transcript_is_accepted_by_the_service(provider: Provider) -> None:
    transcript = (
        system("You help."),
        system("Tools: weather."),
        Message(
            MessageRole.USER,
            (TextPart("What is this?"), ImagePart(PNG, "image/png"), FilePart(b"a", "text/csv", "a.csv")),
        ),
        assistant(
            "I look.",
            ToolCall("call_a", "weather__get", {"city": "Oslo", "deep": {"list": (1, 2)}}),
            ToolCall("call_b", "weather__get", unreadable='{"city": "Be'),
            ToolCall("call_c", "clock__now"),
        ),
        tool_results(
            ToolResult("call_a", (TextPart("Rain"), ImagePart(PNG, "image/png"))),
            ToolResult("call_b", (TextPart("The arguments were not JSON."),), is_error=True),
            ToolResult("call_c", (), is_error=True),
        ),
        system("Answer briefly."),
        assistant(""),
        assistant("Rain."),
        user("Thanks"),
        user(" "),
        user("And tomorrow?"),
    )
    async with talking(provider, Say("Sun.")) as (model, service):
        completion = await complete(model, asking(*transcript, tools=(WEATHER, BARE)))
    assert service.refusals == []
    assert completion.message == assistant("Sun.")
    sent = json.dumps(service.requests[0].body, ensure_ascii=False)
    for text in ("You help.", "Tools: weather.", "What is this?", "a.csv", "Answer briefly.", "And tomorrow?", "Oslo"):
        assert text in sent


async def test_a_reply_can_be_sent_back_with_the_results(provider: Provider) -> None:
    broken = Call("clock__now", "{")
    calls = (Call("weather__get", {"city": "Oslo"}), broken)
    async with talking(provider, Say("I look.", calls, thinking="Where?"), Say("Rain.")) as (model, service):
        reply = (await complete(model, asking(tools=(WEATHER, BARE)))).message
        assert json.loads(json.dumps(reply.provider_metadata)) == reply.provider_metadata
        results = tool_results(*(ToolResult(call.id, (TextPart(f"of {call.name}"),)) for call in reply.tool_calls))
        await complete(model, asking(user("Weather?"), reply, results, tools=(WEATHER, BARE)))
    assert service.refusals == []
    assert service.requests[1].results == ("of weather__get", "of clock__now")
    assert service.requests[1].question == "Weather?"


async def test_a_transcript_of_another_provider_is_accepted(provider: Provider) -> None:
    odd = "chatcmpl-tool:" + "x" * 60
    metadata = {"somebody_else": {"thinking": [{"before": 0, "block": {"type": "thinking"}}]}}
    calls = (ToolCall(odd, "weather.get today!"), ToolCall("", ""))
    transcript = (
        user("One"),
        Message(MessageRole.ASSISTANT, calls, metadata),
        tool_results(ToolResult(odd, (TextPart("first"),)), ToolResult("", (TextPart("second"),))),
        Message(MessageRole.ASSISTANT, calls, metadata),
        tool_results(ToolResult(odd, (TextPart("third"),)), ToolResult("", (TextPart("fourth"),))),
    )
    async with talking(provider, Say("Fine.")) as (model, service):
        await complete(model, asking(*transcript, tools=(WEATHER,)))
    assert service.refusals == []
    assert service.requests[0].results == ("third", "fourth")
    assert "somebody_else" not in json.dumps(service.requests[0].body)


async def test_the_same_transcript_is_always_written_the_same_way(provider: Provider) -> None:
    transcript = (user("One"), assistant("", ToolCall("a b", "x")), tool_results(ToolResult("a b", (TextPart("1"),))))
    async with talking(provider, Say("1"), Say("2")) as (model, service):
        await complete(model, asking(*transcript, tools=(WEATHER,)))
        await complete(model, asking(*transcript, assistant("1"), user("Two"), tools=(WEATHER,)))
    first, second = service.requests
    mark = ', "cache_control": {"type": "ephemeral"}'  # at the end, which moves
    before, now = (json.dumps(request.messages[: len(first.messages)]).replace(mark, "") for request in (first, second))
    assert now == before
    assert second.body["tools"] == first.body["tools"]


async def test_a_result_without_text_tells_its_structured_content(provider: Provider) -> None:
    transcript = (
        user("?"),
        assistant("", ToolCall("c", "clock__now")),
        tool_results(ToolResult("c", (), structured={"now": 7})),
    )
    async with talking(provider, Say("7")) as (model, service):
        await complete(model, asking(*transcript, tools=(BARE,)))
    assert service.requests[0].results == ('{"now": 7}',)


async def test_half_a_surrogate_pair_in_a_request_is_replaced(provider: Provider) -> None:
    transcript = (
        user("a\ud83db"),
        assistant("", ToolCall("c", "clock__now")),
        tool_results(ToolResult("c", (TextPart("c\ud83dd"),))),
    )
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, asking(*transcript, tools=(replace(BARE, description="e\ud83df"),)))
    assert service.requests[0].question == "a\ufffdb"
    assert service.requests[0].results == ("c\ufffdd",)


async def test_schemas_and_arguments_may_be_any_mappings(provider: Provider) -> None:
    schema = MappingProxyType({"properties": MappingProxyType({"n": MappingProxyType({"type": "integer"})})})
    arguments = MappingProxyType({"deep": MappingProxyType({"n": (1, 2)})})
    transcript = (user("?"), assistant("", ToolCall("c", "t", arguments)), tool_results(ToolResult("c", ())))
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, asking(*transcript, tools=(replace(BARE, input_schema=schema),)))
    assert service.refusals == []


async def test_a_note_of_the_operator_after_results_is_not_taken_for_the_question(provider: Provider) -> None:
    transcript = (
        user("What time is it?"),
        assistant("", ToolCall("c", "clock__now")),
        tool_results(ToolResult("c", (TextPart("noon"),))),
        system("Answer in one word."),
    )
    async with talking(provider, Say("Noon.")) as (model, service):
        await complete(model, asking(*transcript, tools=(BARE,)))
    assert service.refusals == []
    assert service.requests[0].question == "What time is it?"
    assert service.requests[0].results == ("noon",)


async def test_tools_are_offered_with_a_schema_the_service_accepts(provider: Provider) -> None:
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, asking(tools=(WEATHER, BARE)))
    assert service.refusals == []
    request = service.requests[0]
    assert request.tool_names == ("weather__get", "clock__now")
    assert "tool_choice" not in request.body


async def test_without_tools_none_are_mentioned(provider: Provider) -> None:
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, replace(asking(), tool_choice=ToolChoice.NONE))
    assert not {"tools", "tool_choice"} & service.requests[0].body.keys()


async def test_a_reply_without_tools_still_lists_them(provider: Provider) -> None:
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, replace(asking(tools=(WEATHER,)), tool_choice=ToolChoice.NONE))
    request = service.requests[0]
    assert request.tool_names == ("weather__get",)
    assert request.body["tool_choice"] in ("none", {"type": "none"})


async def test_the_model_and_the_token_limit_are_passed_on(provider: Provider) -> None:
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, replace(asking(), limits=ModelLimits(max_tokens=77)))
    assert service.requests[0].body["model"] == MODEL
    assert 77 in (service.requests[0].body.get(name) for name in ("max_tokens", "max_output_tokens"))
    assert service.requests[0].headers["authorization"] == f"Bearer {KEY}"


# Connections


async def test_two_streams_at_once_do_not_mix(provider: Provider) -> None:
    def echo(request: Any) -> Say:
        return Say(f"You said {request.question}", pieces=9)

    async with talking(provider, rule=echo) as (model, _):
        completions = await asyncio.gather(*(complete(model, asking(user(f"number {n}"))) for n in range(5)))
    assert [completion.message.text for completion in completions] == [f"You said number {n}" for n in range(5)]


async def test_a_proxy_in_the_environment_is_not_asked_for_this_machine(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with talking(provider, Say("Rain.")) as (model, _):
        assert (await complete(model)).message.text == "Rain."


async def test_creating_a_model_opens_no_connection(provider: Provider) -> None:
    with FakeLanguageModel(provider.api) as service:
        model = provider.create(service.base_url)
        assert model.capabilities.tools
        assert model.capabilities.context_tokens > 0
        await model.close()
    assert service.requests == []


async def test_a_request_of_one_question_is_enough(provider: Provider) -> None:
    async with talking(provider, Say("Hi.")) as (model, service):
        await complete(model, ModelRequest((user("Hi"),)))
    assert service.requests[0].question == "Hi"
