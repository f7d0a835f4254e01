"""The program under load: every part of `countersign run`, as a process of its own.

Begun by `benchmarks.load`, with its settings in the environment. It differs from `countersign run` in two things: the
model answers at once, and Slack's limits are lifted, for they would make ten thousand answers take hours whatever the
program does.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bot.app.database import held_database
from bot.app.discord import opened_discord
from bot.app.house import House, opened_house
from bot.app.models import ModelChoice
from bot.app.observing import opened_metrics, probes
from bot.app.operator_files import read_operator_files
from bot.app.platforms import Platforms
from bot.app.slack import look_up_groups
from bot.app.web import join, opened_surface, served_web, web_parts
from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, StopReason, TextDelta
from bot.domain.messages import assistant
from bot.logs import log_to_stderr
from bot.platforms.slack.pacing import MINUTE, Pacing
from bot.platforms.slack.people import People
from bot.platforms.slack.surface import SlackSurface
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.workspace import SlackWorkspace
from bot.ports import LanguageModel, Listener
from bot.settings import Settings, read_settings

LABEL = re.compile(r"load-[a-z]+-[0-9]+-[0-9]+")
"""What every message of the load is known by."""
ANSWER = "Answer to {}."
PARTS = frozenset({"slack", "discord"})


class InstantModel:
    """Answers at once, with the label of the question."""

    capabilities = Capabilities()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer in one piece."""
        asked = LABEL.findall(request.messages[-1].text)
        text = ANSWER.format(asked[-1] if asked else "nothing")
        yield TextDelta(text)
        yield Completion(assistant(text), StopReason.ANSWERED)

    async def close(self) -> None:
        """There is nothing to let go of."""


class InstantChoice(ModelChoice):
    """That model in the place of one from a provider."""

    def create(self) -> LanguageModel:
        """Build it."""
        return InstantModel()


async def run(settings: Settings) -> None:
    """Run every part until SIGTERM."""
    log_to_stderr(settings.log_level, settings.log_format)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    with held_database(settings, "the load"):
        async with AsyncExitStack() as stack:
            metrics = await opened_metrics()
            slack = await stack.enter_async_context(_slack_without_limits(settings))
            discord = await stack.enter_async_context(opened_discord(settings, metrics.observe))
            platforms, api = Platforms(slack, discord), await opened_surface()
            house = await stack.enter_async_context(
                opened_house(
                    settings,
                    read_operator_files(settings),
                    InstantChoice("instant", "instant"),
                    [*platforms.surfaces, api],
                    observe=metrics.observe,
                )
            )
            join(api, settings, house)
            look_up_groups(slack, house)
            receiving = await platforms.receiving(PARTS, house, settings)
            looks = await stack.enter_async_context(probes(metrics, house))
            await stack.enter_async_context(served_web(settings, parts=web_parts(settings, house, api), pages=looks))
            for name, listener in receiving.listeners.items():
                await stack.enter_async_context(_listening(name, listener, house))
            await house.until(stopped)


@asynccontextmanager
async def _slack_without_limits(settings: Settings) -> AsyncIterator[SlackWorkspace]:
    """Slack, where a minute passes from one call to the next."""
    token = settings.slack_bot_token
    assert token is not None
    minutes = itertools.count()
    pacing = Pacing(clock=lambda: next(minutes) * MINUTE)
    async with WebApi(token.get_secret_value(), url=settings.slack_api_url, pacing=pacing) as api:
        people = People(api, frozenset())
        yield SlackWorkspace(api, people, SlackSurface(api, people))


@asynccontextmanager
async def _listening(name: str, listener: Listener, house: House) -> AsyncIterator[None]:
    listening = asyncio.create_task(listener.run(house.engine, house.commands), name=name)
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(run(read_settings()))
