"""`countersign run`: every part that is configured, until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bot.app.database import lock_database
from bot.app.discord import is_configured as discord_is_configured
from bot.app.links import link_pages
from bot.app.metrics import open_metrics, probe_routes
from bot.app.models import select_model
from bot.app.operator_files import read_operator_files
from bot.app.platforms import open_platforms
from bot.app.runtime import Runtime, open_runtime
from bot.app.secrets import check_operator_secrets
from bot.app.slack import can_receive as slack_can_receive
from bot.app.slack import is_configured as slack_is_configured
from bot.app.web import attach_surface, build_web_dependencies, open_surface, serve_web
from bot.app.web import check_settings as check_web_settings
from bot.app.web import is_configured as web_is_configured
from bot.app.web import is_located as web_is_located
from bot.errors import SettingsError
from bot.logs import log_to_stderr
from bot.ports import Listener
from bot.settings import Settings

log = logging.getLogger(__name__)

NO_PLATFORM = "; no chat platform is configured"

PARTS = ("slack", "discord", "worker", "web")


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the parts named, or all that are configured, until SIGTERM or SIGINT. Raises CountersignError."""
    parts = only or _configured(settings)
    _check(parts, settings)
    log_to_stderr(settings.log_level, settings.log_format)
    choice = select_model(settings)
    files = read_operator_files(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    with lock_database(settings, "countersign run"):
        async with AsyncExitStack() as stack:
            metrics = await open_metrics()
            platforms = await stack.enter_async_context(open_platforms(settings, metrics.observe))
            api = await open_surface()
            # Only a worker draws chats: a process that has no surface drives no turns either. What programs ask over
            # HTTP is driven where they follow it, as it is written.
            surfaces = platforms.surfaces if "worker" in parts else []
            surfaces += [api] if "web" in parts else []
            house = await stack.enter_async_context(
                open_runtime(settings, files, choice, surfaces, observe=metrics.observe)
            )
            attach_surface(api, settings, house)
            platforms.attach(house, settings)
            running, nowhere = ", ".join(sorted(parts)), "" if platforms.surfaces or "web" in parts else NO_PLATFORM
            log.info("%s running on model %s%s", running, choice.label, nowhere)
            receiving = await platforms.receiving(parts, house, settings)
            for name, listener in receiving.listeners.items():
                house.office.health.watch(name, listener)
            if receiving.hooks or "web" in parts or web_is_located(settings):
                looks = await stack.enter_async_context(probe_routes(metrics, house))
                served, pages = None, looks
                if "web" in parts:
                    served = build_web_dependencies(settings, house, api)
                    pages = [*looks, *link_pages(house.office.command_parts, [*platforms.surfaces, api])]
                await stack.enter_async_context(serve_web(settings, hooks=receiving.hooks, parts=served, pages=pages))
            for name, listener in receiving.listeners.items():
                await stack.enter_async_context(_listening(name, listener, house, stopped))
            await house.run_until(stopped)
            log.info("stopping")
    return 0


@asynccontextmanager
async def _listening(name: str, listener: Listener, house: Runtime, stopped: asyncio.Event) -> AsyncIterator[None]:
    """Receive for as long as the block runs. A listener that ends by itself ends the program. Raises what it raised."""
    listening = asyncio.create_task(listener.run(house.engine, house.commands), name=name)
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
    """Raise SettingsError that names every part which cannot be run."""
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
