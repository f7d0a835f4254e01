"""`countersign run`: checks the settings, then runs the configured components until SIGTERM.

Everything around the runtime is built here, in order: metrics, surfaces of platforms, the runtime, listeners, web.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.app import discord, slack, web
from bot.app.database import use_database
from bot.app.models import select_model
from bot.app.operator_files import OperatorFiles, read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.chat.delivery import ChannelMessages
from bot.domain.conversations import CONSOLE
from bot.domain.locales import Locale, use_locale
from bot.domain.metrics import MetricSink
from bot.errors import SettingsError
from bot.folders import shell_command
from bot.llm.models import ModelChoice
from bot.logs import log_to_stderr
from bot.platforms.console.abandoned import AbandonedSurface
from bot.ports import Listener, Surface
from bot.settings import Settings
from bot.storage.lock_file import FileUse

if TYPE_CHECKING:
    from bot.app.components import Runtime
    from bot.platforms.discord.app import DiscordApp
    from bot.platforms.slack.app import SlackApp
    from bot.web.application import Hook, Page
    from bot.web.prometheus import Metrics

log = logging.getLogger(__name__)

COMPONENTS = ("slack", "discord", "worker", "web")


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the named components, or all configured ones, until SIGTERM or SIGINT. Raises CountersignError."""
    configured = {
        "slack": slack.is_configured(settings),
        "discord": discord.is_configured(settings),
        "web": web.is_configured(settings),
    }
    components = only or frozenset({"worker", *(name for name, is_set in configured.items() if is_set)})
    if settings.console and not only:
        components |= {"web"}
    _check(components, settings)
    log_to_stderr(settings.log_level, settings.log_format)
    choice = select_model(settings)
    files = read_operator_files(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    locale = Locale(settings.language, settings.time_zone)
    with use_database(settings, "countersign run", as_bot=True) as use, use_locale(locale):
        async with open_program(settings, files, choice, components, use, on_listener_end=stopped.set) as runtime:
            if not (only or any(configured.values())):
                log.info(
                    "neither Slack, Discord nor the web is set up, so nobody reaches this bot: "
                    "`%s` connects one, `%s` talks in this terminal",
                    shell_command("setup"),
                    shell_command("chat"),
                )
            await runtime.run_until(stopped)
            log.info("stopping")
    return 0


@asynccontextmanager
async def open_program(
    settings: Settings,
    files: OperatorFiles,
    choice: ModelChoice,
    components: frozenset[str],
    use: FileUse | None = None,
    *,
    on_listener_end: Callable[[], None],
) -> AsyncIterator[Runtime]:
    """Build these components of `countersign run`, and run them while the block runs. `use` is as in `open_runtime`. A
    listener that ends by itself calls `on_listener_end`. Raises CountersignError.
    """
    from bot.app.runtime import open_runtime  # noqa: PLC0415 - the settings are checked before a second of loading

    async with AsyncExitStack() as stack:
        metrics = await open_metrics()
        platforms = await stack.enter_async_context(open_platforms(settings, metrics.observe))
        api = await web.open_surface()
        # Only a worker delivers to chats, so a process without surfaces runs no turns. Turns of the
        # HTTP API run where they are written, because clients follow them there.
        abandoned = AbandonedSurface()
        surfaces = [*platforms.surfaces, abandoned] if "worker" in components else []
        surfaces += [api] if "web" in components else []
        runtime = await stack.enter_async_context(
            open_runtime(
                settings, files, choice, surfaces, use=use, observe=metrics.observe, channels=platforms.channel_messages
            )
        )
        if "worker" in components:
            await abandoned.adopt(runtime.turn_log, f"{CONSOLE}:")
            runtime.engine.poll()
        web.attach_surface(api, settings, runtime)
        platforms.attach(runtime, settings)
        no_surface = "" if platforms.surfaces or "web" in components else "; no chat platform is configured"
        log.info("%s running on model %s%s", ", ".join(sorted(components)), choice.label, no_surface)
        listeners, hooks = platforms.build_listeners(components, runtime, settings)
        for name, listener in listeners.items():
            runtime.services.health.watch(name, listener)
        if hooks or "web" in components or web.is_located(settings):
            pages = await stack.enter_async_context(probe_routes(metrics, runtime))
            dependencies = None
            if "web" in components:
                dependencies = web.build_web_dependencies(settings, runtime, api)
                if settings.console:
                    pages += web.console_pages(settings, dependencies, runtime, [*platforms.surfaces, api])
                pages += web.link_pages(
                    runtime.services.command_dependencies, [*platforms.surfaces, api], runtime.services.locales
                )
            if platforms.slack is not None and not components.isdisjoint({"slack", "web"}):
                pages += slack.install_pages(platforms.slack, runtime, settings)
            serving = web.serve_web(settings, hooks=hooks, dependencies=dependencies, pages=pages)
            is_wanted = hooks or web.is_configured(settings)
            await stack.enter_async_context(serving if is_wanted else web.serve_if_free(serving))
        for name, listener in listeners.items():
            await stack.enter_async_context(_listening(name, listener, runtime, on_listener_end))
        yield runtime


# -------------------- settings


def _check(components: frozenset[str], settings: Settings) -> None:
    """Raise SettingsError that names every component which cannot run."""
    wrong = [f"There is no component called {component!r}." for component in sorted(components.difference(COMPONENTS))]
    if wrong:
        raise SettingsError(" ".join(wrong), f"use --only {','.join(sorted(COMPONENTS))}")
    check_operator_secrets(settings)
    slack.check_settings(settings)
    if "web" in components:
        web.check_settings(settings)
    if "slack" in components and slack.is_configured(settings) and not slack.can_receive(settings):
        raise SettingsError(
            "Slack has no way to reach the bot.", "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)"
        )
    if "slack" in components and not slack.is_configured(settings):
        raise SettingsError(
            "Slack is not fully configured: the bot needs its token and a way for Slack to reach it.",
            "set SLACK_BOT_TOKEN, and SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)",
        )
    if "discord" in components and not discord.is_configured(settings):
        raise SettingsError("Discord is not configured: the bot needs its token.", "set DISCORD_TOKEN")


# -------------------- platforms


@dataclass(frozen=True, slots=True)
class Platforms:
    """Configured platforms; None for one that is not configured."""

    slack: SlackApp | None
    discord: DiscordApp | None

    @property
    def surfaces(self) -> list[Surface]:
        """Surfaces of the configured platforms."""
        return [app.surface for app in (self.slack, self.discord) if app is not None]

    @property
    def channel_messages(self) -> Mapping[str, ChannelMessages]:
        """Surfaces by platform, for messages that the bot posts by itself."""
        apps = {"slack": self.slack, "discord": self.discord}
        return {name: app.surface for name, app in apps.items() if app is not None}

    def attach(self, runtime: Runtime, settings: Settings) -> None:
        """Attach the platforms to the runtime. Call this before turns are run."""
        if self.slack is not None:
            slack.share_limits(self.slack, runtime, settings)
            slack.use_installations(self.slack, runtime, settings)
            slack.look_up_groups(self.slack, runtime)
            self.slack.surface.resolve_locales(runtime.services.locales)
        if self.discord is not None:
            self.discord.surface.resolve_locales(runtime.services.locales)

    def build_listeners(
        self, components: frozenset[str], runtime: Runtime, settings: Settings
    ) -> tuple[dict[str, Listener], list[Hook]]:
        """Return the listeners of the wanted components by name, and the hooks for requests of their platforms. Raises
        SettingsError.
        """
        listeners: dict[str, Listener] = {}
        hooks: list[Hook] = []
        if self.slack is not None and "slack" in components:
            lookups = slack.build_lookups(self.slack, runtime)
            listener = slack.build_listener(self.slack, runtime, settings, lookups)
            listeners["slack"] = listener
            hooks += [listener.hook] if listener.hook is not None else []
        if self.discord is not None and "discord" in components:
            listeners["discord"] = discord.build_listener(self.discord, runtime, settings)
        return listeners, hooks


@asynccontextmanager
async def open_platforms(settings: Settings, observe: MetricSink) -> AsyncIterator[Platforms]:
    """Open the configured platforms while the block runs."""
    async with AsyncExitStack() as stack:
        slack_app = discord_app = None
        if slack.is_configured(settings):
            slack_app = await stack.enter_async_context(slack.open_slack(settings, observe))
        if discord.is_configured(settings):
            discord_app = await stack.enter_async_context(discord.open_discord(settings, observe))
        yield Platforms(slack_app, discord_app)


@asynccontextmanager
async def _listening(
    name: str, listener: Listener, runtime: Runtime, on_end: Callable[[], None]
) -> AsyncIterator[None]:
    """Receive while the block runs. A listener that ends by itself calls `on_end`. Raises the listener's error."""
    listening = asyncio.create_task(listener.run(runtime.engine, runtime.commands), name=name)
    listening.add_done_callback(lambda _: on_end())
    try:
        yield
    finally:
        listening.cancel()
        (ending,) = await asyncio.gather(listening, return_exceptions=True)
    if isinstance(ending, Exception):
        raise ending


# -------------------- health and metrics


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
    metrics.set_sources(
        services.stores.reporting.backlog,
        services.toolbox.servers,
        services.stores.takes_writes,
        lambda: services.administration.rejected is None,
    )
    watching = asyncio.create_task(prometheus.watch_loop(metrics.observe), name="loop lag")
    try:
        yield [*application.ready_routes(services.health.check), metrics.route()]
    finally:
        watching.cancel()
        await asyncio.wait({watching})
