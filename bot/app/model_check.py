"""The doctor's look at the language models: what the settings say of them, and what their services say.

Each service is asked whether it has the model and takes the key, which costs no tokens.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator, Sequence
from fnmatch import fnmatchcase
from time import monotonic

from bot.app.models import ModelChoice, select_model
from bot.app.operator_files import OperatorFiles
from bot.commands.text_format import pluralize
from bot.domain.checks import Check, CheckStatus
from bot.errors import CountersignError
from bot.llm.model_availability import Available, ListsModels, NotListed, NotReported, Retired, Standing
from bot.llm.providers import find_provider
from bot.rendering.text_safety import single_line
from bot.settings import Settings

_MOST_NAMES = 5
_LONGEST_NAME = 60


async def examine_models(settings: Settings, files: OperatorFiles) -> AsyncGenerator[Check, None]:
    """Look at the bot's own model, and at each that stands in for it."""
    try:
        choice = select_model(settings)
    except CountersignError as error:
        yield Check("configured", CheckStatus.BROKEN, error.cause, error.fix)
        return
    yield Check("configured", CheckStatus.WELL, choice.label)
    for check in (*_of_order(choice), *_of_windows(settings, choice), *_of_prices(settings, files, choice)):
        yield check
    for check in await asyncio.gather(*map(_of_service, choice.all)):
        yield check


def _of_order(choice: ModelChoice) -> list[Check]:
    names = choice.names
    if "demo" not in names[:-1]:
        return []
    said = f"The demo always answers: {', '.join(names[names.index('demo') + 1 :])} will never be asked."
    return [Check("order", CheckStatus.DOUBTFUL, said, "write demo last, or leave it out")]


def _of_windows(settings: Settings, choice: ModelChoice) -> list[Check]:
    found = []
    before: list[str] = []
    for pattern, _ in settings.context_tokens:
        fitting = [name for name in choice.names if fnmatchcase(name, pattern)]
        if pattern != "*" and not fitting:
            said = f"CONTEXT_TOKENS has a window for {pattern!r}, which no model of BOT_MODEL is called."
            fix = "write it like PROVIDER:NAME, with * for any letters, unless a profile names such a model"
            found.append(Check("windows", CheckStatus.DOUBTFUL, said, fix))
        elif pattern != "*" and all(any(fnmatchcase(name, each) for each in before) for name in fitting):
            said = f"The window that CONTEXT_TOKENS has for {pattern!r} never counts: one before it fits as well."
            found.append(Check("windows", CheckStatus.DOUBTFUL, said, "write the narrower ones first"))
        before.append(pattern)
    return found


def _of_prices(settings: Settings, files: OperatorFiles, choice: ModelChoice) -> list[Check]:
    return [
        Check(
            "prices",
            CheckStatus.DOUBTFUL,
            f"{name} has no price in {settings.prices_file}: limits on money do not count it.",
            "write its price there",
        )
        for name in files.unpriced(choice.names)
    ]


async def _of_service(choice: ModelChoice) -> Check:
    began = monotonic()
    try:
        model = await asyncio.to_thread(choice.create)
        try:
            if not isinstance(model, ListsModels):
                return Check(choice.name, CheckStatus.WELL, "It needs no service.")
            began = monotonic()  # what was loaded until now is the vendor's library
            return _found(choice, model, await model.look_up(), monotonic() - began)
        finally:
            await model.close()
    except CountersignError as error:
        return Check(choice.name, CheckStatus.BROKEN, error.cause, error.fix, monotonic() - began)


def _found(choice: ModelChoice, model: ListsModels, standing: Standing, seconds: float) -> Check:
    service = model.service_name
    match standing:
        case Available(window, until) if until:
            finding, said = CheckStatus.DOUBTFUL, f"{service} has it until {until}.{_window(choice, model, window)}"
            fix = "name a newer one in BOT_MODEL by then"
        case Available(int(window)) if choice.window is not None and choice.window > window:
            finding = CheckStatus.DOUBTFUL
            said = f"{service} has it, with a window of {window:,} tokens. CONTEXT_TOKENS says {choice.window:,}."
            fix = "set CONTEXT_TOKENS to no more than that for it, or leave it out"
        case Available(window):
            finding, said, fix = CheckStatus.WELL, f"{service} has it.{_window(choice, model, window)}", ""
        case Retired():
            finding, said = CheckStatus.BROKEN, f"{service} has retired it: nothing is answered with it any more."
            fix = "name a newer one in BOT_MODEL"
        case NotListed(names):
            said = f"{service} does not list it among its {pluralize(len(names), 'model')}."
            fix = f"have it loaded there, or name one that it has{_such_as(choice, names)}"
            finding = CheckStatus.BROKEN
            if not _lists_all(choice):
                finding, fix = CheckStatus.DOUBTFUL, f"if questions fail, {fix}"
        case NotReported(why):
            finding = CheckStatus.DOUBTFUL
            said = f"{service} was reached, and could not be asked which models it has" + (f": {why}" if why else "")
            said, fix = (
                f"{said.rstrip('.')}.",
                "ask it something: it may answer all the same" if why else _address(choice),
            )
    return Check(choice.name, finding, said, fix, seconds)


def _lists_all(choice: ModelChoice) -> bool:
    """Whether what is not in the service's list is not there. So it is with providers that have one place of their own;
    what stands at another vendor's address speaks its protocol, and many such servers answer to names they do not list.
    """
    provider = find_provider(choice.name.partition(":")[0])
    return provider is not None and provider.address is not None


def _address(choice: ModelChoice) -> str:
    ending = ", which mostly ends " + ("before /v1" if choice.module == "anthropic" else "with /v1")
    return f"if questions fail, correct the address in {choice.config['variables']}_BASE_URL{ending}"


def _window(choice: ModelChoice, model: ListsModels, told: int | None) -> str:
    if choice.window is not None:
        return f" CONTEXT_TOKENS gives it a window of {choice.window:,} tokens."
    if told is not None:
        return f" Its window has {told:,} tokens."
    taken = model.capabilities.context_tokens
    return f" How large its window is was not said: without CONTEXT_TOKENS it is taken for {taken:,} tokens."


def _such_as(choice: ModelChoice, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(choice.config["model"], names, _MOST_NAMES) or sorted(names)[:_MOST_NAMES]
    return f", such as {', '.join(single_line(each, _LONGEST_NAME) for each in close)}" if close else ""
