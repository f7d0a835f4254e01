"""`countersign run`: all configured components, until SIGTERM."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.app.database import lock_database
from bot.app.discord import build_listener as discord_listener_of
from bot.app.discord import is_configured as discord_is_configured
from bot.app.discord import open_discord
from bot.app.models import select_model
from bot.app.operator_files import read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.app.slack import build_listener as slack_listener_of
from bot.app.slack import build_lookups, look_up_groups, open_slack, share_limits
from bot.app.slack import can_receive as slack_can_receive
from bot.app.slack import is_configured as slack_is_configured
from bot.app.web import attach_surface, build_web_dependencies, link_pages, open_surface, serve_web
from bot.app.web import check_settings as check_web_settings
from bot.app.web import is_configured as web_is_configured
from bot.app.web import is_located as web_is_located
from bot.domain.metrics import MetricSink
from bot.errors import SettingsError
from bot.logs import log_to_stderr
from bot.ports import Listener, Surface
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.runtime import Runtime
    from bot.platforms.discord.app import DiscordApp
    from bot.platforms.slack.app import SlackApp
    from bot.web.application import Hook, Page
    from bot.web.prometheus import Metrics

# -------------------- platforms


@dataclass(slots=True)
class Listeners:
    """Listeners by the name of their component, and hooks for requests of platforms."""

    listeners: dict[str, Listener] = field(default_factory=dict)
    hooks: list[Hook] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Platforms:
    """Configured platforms; None for one that is not configured."""

    slack: SlackApp | None
    discord: DiscordApp | None

    @property
    def surfaces(self) -> list[Surface]:
        """Surfaces of the configured platforms."""
        return [app.surface for app in (self.slack, self.discord) if app is not None]

    def attach(self, runtime: Runtime, settings: Settings) -> None:
        """Attach the platforms to the runtime. Call this before turns are run."""
        if self.slack is not None:
            share_limits(self.slack, runtime, settings)
            look_up_groups(self.slack, runtime)

    async def receiving(self, parts: frozenset[str], runtime: Runtime, settings: Settings) -> Listeners:
        """Return the listeners and hooks of the wanted components. Raises SettingsError."""
        listeners = Listeners()
        if self.slack is not None and "slack" in parts:
            slack = slack_listener_of(self.slack, settings, await build_lookups(self.slack, runtime))
            listeners.listeners["slack"] = slack
            listeners.hooks += [slack.hook] if slack.hook is not None else []
        if self.discord is not None and "discord" in parts:
            listeners.listeners["discord"] = await discord_listener_of(self.discord, runtime, settings)
        return listeners


@asynccontextmanager
async def open_platforms(settings: Settings, observe: MetricSink) -> AsyncIterator[Platforms]:
    """Open the configured platforms while the block runs."""
    async with AsyncExitStack() as stack:
        slack = discord = None
        if slack_is_configured(settings):
            slack = await stack.enter_async_context(open_slack(settings, observe))
        if discord_is_configured(settings):
            discord = await stack.enter_async_context(open_discord(settings, observe))
        yield Platforms(slack, discord)


# -------------------- metrics


async def open_metrics() -> Metrics:
    """Create the metrics of this process. Nothing is collected on demand before `probe_routes`."""
    module = await asyncio.to_thread(importlib.import_module, "bot.web.prometheus")
    metrics: Metrics = module.Metrics()
    return metrics


@asynccontextmanager
async def probe_routes(metrics: Metrics, runtime: Runtime) -> AsyncIterator[list[Page]]:
    """Yield the routes of health and metrics, which take no token. The event loop's lag is measured while the block
    runs.
    """
    application, prometheus = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.web.{name}") for name in ("application", "prometheus"))
    )
    services = runtime.services
    metrics.set_sources(services.stores.archive.backlog, services.toolbox.servers, services.takes_writes)
    watching = asyncio.create_task(prometheus.watch_loop(metrics.observe), name="loop lag")
    try:
        yield [*application.ready_routes(services.health.look), metrics.route()]
    finally:
        watching.cancel()
        await asyncio.wait({watching})


log = logging.getLogger(__name__)

NO_PLATFORM = "; no chat platform is configured"

PARTS = ("slack", "discord", "worker", "web")


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the named components, or all configured ones, until SIGTERM or SIGINT. Raises CountersignError."""
    parts = only or _configured(settings)
    _check(parts, settings)
    log_to_stderr(settings.log_level, settings.log_format)
    choice = select_model(settings)
    files = read_operator_files(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    from bot.app.runtime import open_runtime  # noqa: PLC0415 - the settings are checked before a second of loading

    with lock_database(settings, "countersign run"):
        async with AsyncExitStack() as stack:
            metrics = await open_metrics()
            platforms = await stack.enter_async_context(open_platforms(settings, metrics.observe))
            api = await open_surface()
            # Only a worker delivers to chats, so a process without surfaces runs no turns. Turns of the
            # HTTP API run where they are written, because clients follow them there.
            surfaces = platforms.surfaces if "worker" in parts else []
            surfaces += [api] if "web" in parts else []
            runtime = await stack.enter_async_context(
                open_runtime(settings, files, choice, surfaces, observe=metrics.observe)
            )
            attach_surface(api, settings, runtime)
            platforms.attach(runtime, settings)
            running, nowhere = ", ".join(sorted(parts)), "" if platforms.surfaces or "web" in parts else NO_PLATFORM
            log.info("%s running on model %s%s", running, choice.label, nowhere)
            receiving = await platforms.receiving(parts, runtime, settings)
            for name, listener in receiving.listeners.items():
                runtime.services.health.watch(name, listener)
            if receiving.hooks or "web" in parts or web_is_located(settings):
                looks = await stack.enter_async_context(probe_routes(metrics, runtime))
                served, pages = None, looks
                if "web" in parts:
                    served = build_web_dependencies(settings, runtime, api)
                    pages = [*looks, *link_pages(runtime.services.command_parts, [*platforms.surfaces, api])]
                await stack.enter_async_context(serve_web(settings, hooks=receiving.hooks, parts=served, pages=pages))
            for name, listener in receiving.listeners.items():
                await stack.enter_async_context(_listening(name, listener, runtime, stopped))
            await runtime.run_until(stopped)
            log.info("stopping")
    return 0


@asynccontextmanager
async def _listening(name: str, listener: Listener, runtime: Runtime, stopped: asyncio.Event) -> AsyncIterator[None]:
    """Receive while the block runs. A listener that ends by itself ends the program. Raises the listener's error."""
    listening = asyncio.create_task(listener.run(runtime.engine, runtime.commands), name=name)
    listening.add_done_callback(lambda _: stopped.set())
    try:
        yield
    finally:
        listening.cancel()
        (ending,) = await asyncio.gather(listening, return_exceptions=True)
    if isinstance(ending, Exception):
        raise ending


def _configured(settings: Settings) -> frozenset[str]:
    receiving = {
        "slack": slack_is_configured(settings),
        "discord": discord_is_configured(settings),
        "web": web_is_configured(settings),
    }
    return frozenset({"worker", *(name for name, configured in receiving.items() if configured)})


def _check(parts: frozenset[str], settings: Settings) -> None:
    """Raise SettingsError that names every component which cannot run."""
    wrong = [f"There is no part called {part!r}." for part in sorted(parts.difference(PARTS))]
    if wrong:
        raise SettingsError(" ".join(wrong), f"use --only {','.join(sorted(PARTS))}")
    check_operator_secrets(settings)
    if "web" in parts:
        check_web_settings(settings)
    if "slack" in parts and not slack_can_receive(settings):
        raise SettingsError(
            "Slack is not fully configured: the bot needs its token and a way for Slack to reach it.",
            "set SLACK_BOT_TOKEN, and SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)",
        )
    if "discord" in parts and not discord_is_configured(settings):
        raise SettingsError("Discord is not configured: the bot needs its token.", "set DISCORD_TOKEN")
