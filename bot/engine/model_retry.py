"""One reply of the model, tried again where that can help: later, or without a tool that its service refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from bot.domain.completions import Completion, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta, UsageReported
from bot.domain.tools import Tool
from bot.domain.views import ModelRetry
from bot.engine.usage_metering import RequestAttempt
from bot.errors import ModelRejected, ModelUnavailable
from bot.ports import LanguageModel

ATTEMPTS = 4
LONGEST_WAIT_SECONDS = 60.0
MOST_REFUSED = 8
"""Tools that are dropped from one question. Who finds fault with more has something else against it."""


async def complete_with_retry(
    model: LanguageModel,
    request: ModelRequest,
    *,
    activity: str,
    begin: Callable[[], Awaitable[RequestAttempt]],
    on_text: Callable[[str], None],
    on_activity: Callable[[str | ModelRetry], None],
    on_refused: Callable[[Tool, ModelRejected], None],
    pause: Callable[[float], Awaitable[None]],
) -> Completion:
    """Ask until the model has answered, at most `ATTEMPTS` times, not counting those that a tool has spoilt: its
    service refuses a whole request for one tool, so it is asked again without it at once.

    `begin` meters each attempt from then on. `on_text` gets the reply's text so far, from its beginning, also when a
    second attempt starts over; `on_activity` gets `activity` as each attempt begins, and what the person should know
    about the wait before the next; `on_refused` each tool that is dropped. Raises ModelUnavailable when all attempts
    have failed or the provider asks for a longer pause than a person should sit through, ModelRejected at once where it
    is not about a tool.
    """
    attempt, refused = 1, 0
    while True:
        on_activity(activity)
        try:
            return await _attempt(model, request, await begin(), on_text)
        except ModelRejected as problem:
            tool = next((tool for tool in request.tools if tool.name == problem.tool), None)
            if tool is None or refused == MOST_REFUSED:
                raise
            refused += 1
            on_text("")
            on_refused(tool, problem)
            request = replace(request, tools=tuple(each for each in request.tools if each is not tool))
        except ModelUnavailable as problem:
            seconds = problem.retry_after if problem.retry_after is not None else 2.0 ** (attempt - 1)
            if attempt == ATTEMPTS or seconds > LONGEST_WAIT_SECONDS:
                raise
            on_text("")
            on_activity(ModelRetry(round(seconds), problem.cause) if seconds >= 1 else problem.cause)
            await pause(seconds)
            attempt += 1


async def _attempt(
    model: LanguageModel, request: ModelRequest, attempt: RequestAttempt, on_text: Callable[[str], None]
) -> Completion:
    text = ""
    # Closed at once when cancelled: the provider must not go on writing what nobody reads.
    async with aclosing(model.stream(request)) as events:
        async for event in events:
            attempt.take(event)
            match event:
                case TextDelta(more):
                    text += more
                    on_text(text)
                case ReasoningDelta() | ToolCallDelta() | UsageReported():
                    pass
                case Completion():
                    return event
    raise ModelUnavailable("The model's answer broke off.")
