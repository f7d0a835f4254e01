"""Checks of the language models: whether their services have them and take the key, and a trial of a tool call."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from time import monotonic

from bot.admin.text_format import pluralize
from bot.app.models import select_model
from bot.app.operator_files import OperatorFiles
from bot.domain.completions import Completion, ModelLimits, ModelRequest
from bot.domain.messages import user
from bot.domain.tools import OWN_SERVER, Tool
from bot.errors import CountersignError, ModelUnavailable
from bot.examination import Check, CheckDoubtful, CheckFailed, CheckStatus, failed_check, run_check
from bot.llm.models import (
    PARSE_CALLS,
    Available,
    ListsModels,
    ModelChoice,
    NotListed,
    NotReported,
    Retired,
)
from bot.llm.providers import PROVIDERS
from bot.llm.static_embeddings import load_embedder
from bot.ports import LanguageModel
from bot.rendering.text_safety import single_line
from bot.settings import Settings

_LONGEST_NAME = 60
_MOST_NAMES = 5
TRIAL_SECONDS = 60.0
_TRIAL_TOOL = Tool(
    "note_word",
    OWN_SERVER,
    "note_word",
    description="Notes one word.",
    input_schema={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
_TRIAL = ModelRequest(
    (user("Call the tool note_word with the word ready. Write nothing else."),),
    (_TRIAL_TOOL,),
    limits=ModelLimits(max_tokens=2_048),
)


async def examine_models(settings: Settings, files: OperatorFiles) -> AsyncGenerator[Check, None]:
    """Check the bot's own model, each of its fallbacks, and the model of the search among tools."""
    try:
        choice = select_model(settings)
    except CountersignError as error:
        yield failed_check("configured", error)
        return
    yield Check("configured", CheckStatus.WELL, choice.label)
    for name, text, fix in _setting_warnings(settings, files, choice):
        yield Check(name, CheckStatus.DOUBTFUL, text, fix)
    for checks in await asyncio.gather(*map(_check_model, choice.all)):
        for check in checks:
            yield check
    if (folder := settings.tool_search_embeddings) is not None:
        try:
            await asyncio.to_thread(load_embedder, folder, "TOOL_SEARCH_EMBEDDINGS")
            yield Check("embeddings", CheckStatus.WELL, f"The search among tools uses {folder}.")
        except CountersignError as error:
            yield failed_check("embeddings", error)


def _setting_warnings(settings: Settings, files: OperatorFiles, choice: ModelChoice) -> Iterator[tuple[str, str, str]]:
    """Yield settings of models that have no effect, each with the name of the check and the fix."""
    names = choice.names
    if "demo" in names[:-1]:
        text = f"The demo always answers: {', '.join(names[names.index('demo') + 1 :])} will never be asked."
        yield "order", text, "write demo last, or leave it out"
    before: list[str] = []
    for pattern, _ in settings.context_tokens:
        fitting = [name for name in names if fnmatchcase(name, pattern)]
        if pattern != "*" and not fitting:
            text = f"CONTEXT_TOKENS has a window for {pattern!r}, which no model of BOT_MODEL is called."
            yield (
                "windows",
                text,
                "write it like PROVIDER:NAME, with * for any letters, unless a profile names such a model",
            )
        elif pattern != "*" and all(any(fnmatchcase(name, earlier) for earlier in before) for name in fitting):
            text = f"The window that CONTEXT_TOKENS has for {pattern!r} never counts: one before it fits as well."
            yield "windows", text, "write the narrower ones first"
        before.append(pattern)
    for name in files.unpriced_models(names):
        text = f"{name} has no price in {settings.prices_file}: limits on money do not count it."
        yield "prices", text, "write its price there"


async def _check_model(choice: ModelChoice) -> list[Check]:
    service = await check_service(choice)
    if service.is_broken or not choice.config:
        return [service]
    return [service, await _run_with_model(f"{choice.name} tool call", choice, _call_a_tool)]


async def check_service(choice: ModelChoice) -> Check:
    """Check that a model's service takes the key and has the model."""
    check = await _run_with_model(choice.name, choice, partial(_ask_service, choice))
    return check if choice.config else replace(check, seconds=None)


async def _run_with_model(name: str, choice: ModelChoice, probe: Callable[[LanguageModel], Awaitable[str]]) -> Check:
    """Run a check of a model. Loading the vendor's library does not count."""
    began = monotonic()
    try:
        model = await asyncio.to_thread(choice.create)
    except CountersignError as error:
        return replace(failed_check(name, error), seconds=monotonic() - began)
    try:
        return await run_check(name, partial(probe, model))
    finally:
        await model.close()


async def _call_a_tool(model: LanguageModel) -> str:
    """Have the model call a tool, which costs some tokens."""
    try:
        async with asyncio.timeout(TRIAL_SECONDS), aclosing(model.stream(_TRIAL)) as events:
            replies = [event async for event in events if isinstance(event, Completion)]
    except TimeoutError as error:
        detail = f"It did not answer a trial within {TRIAL_SECONDS:g} seconds."
        fix = "ask it something: a server that loads the model with the first question takes longer then"
        raise CheckDoubtful(detail, fix) from error
    except CountersignError as error:
        outcome = CheckDoubtful if isinstance(error, ModelUnavailable) else CheckFailed
        raise outcome(f"A trial of a tool call failed: {error.cause}", error.fix) from error
    if not model.capabilities.tools:
        detail = "Its service refuses tools: it answers without them."
        raise CheckDoubtful(detail, f"use another model, or {PARSE_CALLS}")
    if not any(call.name == _TRIAL_TOOL.name for reply in replies for call in reply.message.tool_calls):
        detail = "It answered a trial without calling the tool that it was asked for."
        raise CheckDoubtful(detail, "use a model that is made for tool calls")
    if replies[-1].calls_as_text:
        detail = "It wrote a trial call as text, because its service does not parse it."
        raise CheckDoubtful(detail, f"{PARSE_CALLS}, or use a model that is made for tool calls")
    return "It called the tool of a trial properly."


async def _ask_service(choice: ModelChoice, model: LanguageModel) -> str:
    """Return that the service has the model. Raises CheckOutcome."""
    if not isinstance(model, ListsModels):
        return "It needs no service."
    service = model.service_name
    match await model.look_up():
        case Available(window, until) if until:
            text = f"{service} has it until {until}.{_window(choice, model, window)}"
            raise CheckDoubtful(text, "name a newer one in BOT_MODEL by then")
        case Available(int(window)) if choice.window is not None and choice.window > window:
            text = f"{service} has it, with a window of {window:,} tokens. CONTEXT_TOKENS says {choice.window:,}."
            raise CheckDoubtful(text, "set CONTEXT_TOKENS to no more than that for it, or leave it out")
        case Available(window):
            return f"{service} has it.{_window(choice, model, window)}"
        case Retired():
            text = f"{service} has retired it: nothing is answered with it any more."
            raise CheckFailed(text, "name a newer one in BOT_MODEL")
        case NotListed(names):
            text = f"{service} does not list it among its {pluralize(len(names), 'model')}."
            close = difflib.get_close_matches(choice.config["model"], names, _MOST_NAMES) or sorted(names)[:_MOST_NAMES]
            like = f", such as {', '.join(single_line(name, _LONGEST_NAME) for name in close)}" if close else ""
            fix = f"have it loaded there, or name one that it has{like}"
            # Only the provider's own list is complete. Servers at a custom address often accept names
            # that they do not list.
            provider = PROVIDERS.get(choice.name.partition(":")[0])
            if provider is not None and provider.address is not None:
                raise CheckFailed(text, fix)
            raise CheckDoubtful(text, f"if questions fail, {fix}")
        case NotReported(why):
            text = f"{service} was reached, and could not be asked which models it has" + (f": {why}" if why else "")
            fix = "ask it something: it may answer all the same"
            if not why:
                ending = "before /v1" if choice.module == "anthropic" else "with /v1"
                variable = f"{choice.config['variables']}_BASE_URL"
                fix = f"if questions fail, correct the address in {variable}, which mostly ends {ending}"
            raise CheckDoubtful(f"{text.rstrip('.')}.", fix)


def _window(choice: ModelChoice, model: ListsModels, tokens: int | None) -> str:
    if choice.window is not None:
        return f" CONTEXT_TOKENS gives it a window of {choice.window:,} tokens."
    if tokens is not None:
        return f" Its window has {tokens:,} tokens."
    window = model.capabilities.context_tokens
    return f" How large its window is was not said: without CONTEXT_TOKENS it is taken for {window:,} tokens."
