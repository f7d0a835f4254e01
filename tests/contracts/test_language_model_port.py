"""Contract of every language model, the demo included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

import pytest

from bot.domain.completions import Completion, ModelRequest, StopReason, TextDelta, ToolChoice
from bot.domain.messages import (
    FilePart,
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
from bot.domain.tools import Annotations, Tool
from bot.llm import demo
from bot.ports import LanguageModel
from tests.fakes.llm import Call, Reply, Request, Say
from tests.llm.conversation import PROVIDERS, asking, complete, events, next_seen, talking

FORECAST = Tool(
    "weather__forecast",
    "weather",
    "forecast",
    description="The weather forecast for a city.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    annotations=Annotations(read_only=True),
)
QUESTION = user("What is the weather forecast for Oslo?")


def sensible(request: Request) -> Reply:
    """Reply like a model that calls for the forecast. It answers once it has the forecast or may not call."""
    if request.results:
        return Say(f"It says: {request.results[0]}")
    forbidden = request.body.get("tool_choice") in ("none", {"type": "none"})
    if request.tool_names and not forbidden:
        return Say("I look.", calls=(Call("weather__forecast", {"city": "Oslo"}),), thinking="Where?")
    return Say("I cannot know that.")


@pytest.fixture(params=[*PROVIDERS, None], ids=lambda provider: provider.api if provider else "demo")
async def model(request: pytest.FixtureRequest) -> AsyncIterator[LanguageModel]:
    if request.param is None:
        yield demo.create(demo.Config())
        return
    async with talking(request.param, rule=sensible) as (model, service):
        yield model
    assert service.refusals == []


async def test_text_comes_in_pieces_and_one_completion_with_all_of_it_last(model: LanguageModel) -> None:
    *deltas, last = await events(model, ModelRequest((QUESTION,)))
    assert isinstance(last, Completion)
    assert last.stop is StopReason.ANSWERED
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.message.text
    assert last.message.text
    assert not any(isinstance(delta, Completion) for delta in deltas)


async def test_a_tool_is_asked_for_and_its_result_answered_with(model: LanguageModel) -> None:
    asked = await complete(model, asking(QUESTION, tools=(FORECAST,)))
    assert asked.stop is StopReason.TOOLS
    (call,) = asked.message.tool_calls
    assert call.id
    assert (call.name, call.unreadable) == ("weather__forecast", "")
    assert isinstance(call.arguments, Mapping)
    assert call.arguments["city"] == "Oslo"
    result = tool_results(ToolResult(call.id, (TextPart("Rain until noon."),)))
    answered = await complete(model, asking(QUESTION, asked.message, result, tools=(FORECAST,)))
    assert answered.stop is StopReason.ANSWERED
    assert "Rain until noon." in answered.message.text
    assert answered.message.tool_calls == ()


async def test_a_model_that_may_use_no_tools_asks_for_none(model: LanguageModel) -> None:
    completion = await complete(model, ModelRequest((QUESTION,), (FORECAST,), ToolChoice.NONE))
    assert completion.stop is StopReason.ANSWERED
    assert completion.message.tool_calls == ()


async def test_a_reply_can_be_kept_and_sent_again(model: LanguageModel) -> None:
    reply = (await complete(model, asking(QUESTION, tools=(FORECAST,)))).message
    assert reply.role is MessageRole.ASSISTANT
    message = Message(reply.role, reply.parts, json.loads(json.dumps(dict(reply.provider_metadata))))
    results = tool_results(*(ToolResult(call.id, (), is_error=True) for call in reply.tool_calls))
    assert isinstance(await complete(model, asking(QUESTION, message, results, tools=(FORECAST,))), Completion)


async def test_any_transcript_is_read(model: LanguageModel) -> None:
    transcript = (
        system("You help."),
        user("Hello"),
        assistant("Hello."),
        system("Be brief."),
        assistant(""),
        user(" "),
        Message(MessageRole.USER, (ImagePart(b"\x89PNG", "image/png"), FilePart(b"%PDF", "application/pdf", "a.pdf"))),
        QUESTION,
    )
    completion = await complete(model, asking(*transcript))
    assert completion.stop is StopReason.ANSWERED
    assert completion.usage.input_tokens >= 0


async def test_several_may_ask_at_once(model: LanguageModel) -> None:
    replies = await asyncio.gather(*(complete(model, asking(QUESTION, tools=(FORECAST,))) for _ in range(5)))
    assert all(reply.stop is StopReason.TOOLS for reply in replies)


async def test_a_reply_may_be_left_in_the_middle(model: LanguageModel) -> None:
    async with aclosing(model.stream(ModelRequest((QUESTION,)))) as stream:
        assert isinstance(await next_seen(stream), TextDelta)
    assert (await complete(model, ModelRequest((QUESTION,)))).message.text


def test_capabilities_are_known_before_the_first_request(model: LanguageModel) -> None:
    capabilities = model.capabilities
    assert capabilities.tools
    assert capabilities.context_tokens > 0
    assert capabilities.image_bytes > 0
