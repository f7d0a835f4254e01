"""The program under load: every part of `countersign run`.

Started by `benchmarks.load`, with settings in the environment. It differs from `countersign run` in two ways: the
model answers at once, and Slack's rate limits are lifted, because under them ten thousand answers take hours.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bot.app.components import Runtime
from bot.app.database import use_database
from bot.app.discord import open_discord
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_runtime
from bot.app.service import Platforms, open_metrics, probe_routes
from bot.app.slack import look_up_groups
from bot.app.web import attach_surface, build_web_dependencies, open_surface, serve_web
from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, StopReason, TextDelta
from bot.domain.messages import assistant
from bot.domain.metrics import null_sink
from bot.llm.models import ModelChoice
from bot.logs import log_to_stderr
from bot.platforms.slack.app import SlackApp, SlackSurface, WorkspaceFactory
from bot.platforms.slack.rate_limits import MINUTE, RateLimiter
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi
from bot.platforms.slack.workspaces import SlackWorkspace, SlackWorkspaces
from bot.ports import LanguageModel, Listener
from bot.settings import Settings, read_settings
from tests.fakes.fork_server import end_with_parent

LABEL = re.compile(r"load-[a-z]+-[0-9]+-[0-9]+")
"""Label of a message."""
ANSWER = "Answer to {}."
PARTS = frozenset({"slack", "discord"})


class InstantModel:
    """Model that answers at once with the label of the input."""

    capabilities = Capabilities()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the answer in one piece."""
        matches = LABEL.findall(request.messages[-1].text)
        text = ANSWER.format(matches[-1] if matches else "nothing")
        yield TextDelta(text)
        yield Completion(assistant(text), StopReason.ANSWERED)

    async def close(self) -> None:
        """Do nothing, because there is no connection."""


class InstantChoice(ModelChoice):
    """Selection of the instant model in place of a provider's."""

    def create(self) -> LanguageModel:
        """Create the model."""
        return InstantModel()


async def run(settings: Settings) -> None:
    """Run every part until SIGTERM."""
    log_to_stderr(settings.log_level, settings.log_format)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    with use_database(settings, "the load", alone=True):
        async with AsyncExitStack() as stack:
            metrics = await open_metrics()
            slack = await stack.enter_async_context(_slack_without_limits(settings))
            discord = await stack.enter_async_context(open_discord(settings, metrics.observe))
            platforms, api = Platforms(slack, discord), await open_surface()
            runtime = await stack.enter_async_context(
                open_runtime(
                    settings,
                    read_operator_files(settings),
                    InstantChoice("instant", "instant"),
                    [*platforms.surfaces, api],
                    observe=metrics.observe,
                )
            )
            attach_surface(api, settings, runtime)
            look_up_groups(slack, runtime)
            listeners, _hooks = platforms.build_listeners(PARTS, runtime, settings)
            looks = await stack.enter_async_context(probe_routes(metrics, runtime))
            await stack.enter_async_context(
                serve_web(settings, dependencies=build_web_dependencies(settings, runtime, api), pages=looks)
            )
            for name, listener in listeners.items():
                await stack.enter_async_context(_listening(name, listener, runtime))
            await runtime.run_until(stopped)


@asynccontextmanager
async def _slack_without_limits(settings: Settings) -> AsyncIterator[SlackApp]:
    """Open Slack with a clock that jumps a minute between calls."""
    token = settings.slack_bot_token
    assert token is not None
    minutes = itertools.count()
    pacing = RateLimiter(clock=lambda: next(minutes) * MINUTE)
    async with WebApi(token.get_secret_value(), url=settings.slack_api_url, pacing=pacing) as api:
        workspaces = SlackWorkspaces(SlackWorkspace(api, UserDirectory(api, frozenset())))
        yield SlackApp(workspaces, SlackSurface(workspaces), WorkspaceFactory(api, frozenset(), null_sink))


@asynccontextmanager
async def _listening(name: str, listener: Listener, runtime: Runtime) -> AsyncIterator[None]:
    listening = asyncio.create_task(listener.run(runtime.engine, runtime.commands), name=name)
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(run(read_settings()))
