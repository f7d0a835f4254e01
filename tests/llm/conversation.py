"""Conversations with a provider through the vendor's real client and a fake service on a real socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest

from bot.domain.completions import Completion, ModelEvent, ModelRequest, ToolCallDelta, UsageReported
from bot.domain.messages import Message, user
from bot.domain.tools import Tool
from bot.llm import anthropic, openai_chat, openai_responses
from bot.ports import LanguageModel
from tests.fakes.llm import Api, FakeLanguageModel, Reply, Rule

KEY = "sk-test-0123456789abcdef"
MODEL = "model-under-test"


@dataclass(frozen=True, slots=True)
class Provider:
    """An implementation of the port for a service: its fake and its constructor."""

    api: Api
    variables: str
    create: Callable[[str], LanguageModel]


OPENAI_CHAT = Provider(
    "openai", "OPENAI", lambda address: openai_chat.create(openai_chat.Config(MODEL, KEY, base_url=address))
)
OPENAI_RESPONSES = Provider(
    "responses",
    "OPENAI",
    lambda address: openai_responses.create(openai_responses.Config(MODEL, KEY, base_url=address)),
)
ANTHROPIC = Provider(
    "anthropic", "ANTHROPIC", lambda address: anthropic.create(anthropic.Config(MODEL, KEY, base_url=address))
)

PROVIDERS = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC)
"""All implementations for services. Contract tests run on each."""
EACH_PROVIDER = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.api)


@asynccontextmanager
async def talking(
    provider: Provider, *replies: Reply, rule: Rule | None = None
) -> AsyncIterator[tuple[LanguageModel, FakeLanguageModel]]:
    """Yield a model and its fake service."""
    with FakeLanguageModel(provider.api, *replies, rule=rule) as service:
        model = provider.create(service.base_url)
        try:
            yield model, service
        finally:
            await model.close()


def asking(*messages: Message, tools: tuple[Tool, ...] = ()) -> ModelRequest:
    """Return a request, with a default message if `messages` is empty."""
    return ModelRequest(messages or (user("How is the weather?"),), tools)


async def everything(model: LanguageModel, request: ModelRequest | None = None) -> list[ModelEvent]:
    """Return all events that the model yields for a request."""
    async with aclosing(model.stream(request or asking())) as stream:
        return [event async for event in stream]


async def events(model: LanguageModel, request: ModelRequest | None = None) -> list[ModelEvent]:
    """Return the events that users see, and the completion."""
    return [event for event in await everything(model, request) if not isinstance(event, UsageReported | ToolCallDelta)]


async def next_seen(stream: AsyncGenerator[ModelEvent, None]) -> ModelEvent:
    """Return the next event that users see, or the completion."""
    while True:
        event = await anext(stream)
        if not isinstance(event, UsageReported | ToolCallDelta):
            return event


async def complete(model: LanguageModel, request: ModelRequest | None = None) -> Completion:
    """Return the completion that ends a stream."""
    last = (await events(model, request))[-1]
    assert isinstance(last, Completion)
    return last
