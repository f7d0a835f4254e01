"""`countersign run`: every part that is configured, until SIGTERM."""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bot.app.database import held_database
from bot.app.discord import is_configured as discord_is_configured
from bot.app.discord import listener_of as discord_listener_of
from bot.app.discord import opened_discord
from bot.app.house import House, opened_house
from bot.app.models import choose_model
from bot.app.operator_files import read_operator_files
from bot.app.slack import can_receive as slack_can_receive
from bot.app.slack import is_configured as slack_is_configured
from bot.app.slack import listener_of as slack_listener_of
from bot.app.slack import look_up_groups, opened_slack, records_of, share_limits
from bot.errors import SettingsError
from bot.logs import log_to_stderr
from bot.ports import Listener, Surface
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.platforms.slack.web_hook import WebHook

log = logging.getLogger(__name__)

NO_PLATFORM = "; no chat platform is configured"

PARTS = ("slack", "discord", "worker", "web")
AVAILABLE = frozenset({"slack", "discord", "worker"})


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the parts named, or all that are configured, until SIGTERM or SIGINT. Raises CountersignError."""
    parts = only or _configured(settings)
    _check(parts, settings)
    log_to_stderr(settings.log_level, settings.log_format)
    choice = choose_model(settings)
    files = read_operator_files(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    with held_database(settings, "countersign run"):
        async with AsyncExitStack() as stack:
            slack = await stack.enter_async_context(opened_slack(settings)) if slack_is_configured(settings) else None
            discord = (
                await stack.enter_async_context(opened_discord(settings)) if discord_is_configured(settings) else None
            )
            platforms = [each for each in (slack, discord) if each is not None]
            # Only a worker draws: a process that has no surface drives no turns either.
            surfaces: list[Surface] = [each.surface for each in platforms] if "worker" in parts else []
            house = await stack.enter_async_context(opened_house(settings, files, choice, surfaces))
            if slack is not None:
                share_limits(slack, house, settings)
                look_up_groups(slack, house)
            running, nowhere = ", ".join(sorted(parts)), "" if platforms else NO_PLATFORM
            log.info("%s running on model %s%s", running, choice.label, nowhere)
            if slack is not None and "slack" in parts:
                receives = slack_listener_of(slack, settings, await records_of(slack, house))
                if receives.hook is not None:
                    await stack.enter_async_context(_served(receives.hook, settings))
                await stack.enter_async_context(_listening("slack", receives, house, stopped))
            if discord is not None and "discord" in parts:
                listener = await discord_listener_of(discord, house, settings)
                await stack.enter_async_context(_listening("discord", listener, house, stopped))
            await house.until(stopped)
            log.info("stopping")
    return 0


@asynccontextmanager
async def _served(hook: WebHook, settings: Settings) -> AsyncIterator[None]:
    """Take requests over HTTP for as long as the block runs."""
    web = await asyncio.to_thread(importlib.import_module, "bot.web.server")
    async with web.served(web.application([hook]), settings.web_host, settings.port) as port:
        log.info("listening for requests at %s, port %d", settings.web_host, port)
        yield


@asynccontextmanager
async def _listening(name: str, listener: Listener, house: House, stopped: asyncio.Event) -> AsyncIterator[None]:
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
    receiving = {"slack": slack_is_configured(settings), "discord": discord_is_configured(settings)}
    return frozenset({"worker", *(name for name, configured in receiving.items() if configured)})


def _check(parts: frozenset[str], settings: Settings) -> None:
    """Raise SettingsError that names every part which cannot be run."""
    wrong = [f"There is no part called {part!r}." for part in sorted(parts.difference(PARTS))]
    wrong += [f"The part {part!r} is not in this release." for part in PARTS if part in parts - AVAILABLE]
    if wrong:
        raise SettingsError(" ".join(wrong), f"use --only {','.join(sorted(AVAILABLE))}")
    if "slack" in parts and not slack_can_receive(settings):
        raise SettingsError(
            "Slack is not fully configured: the bot needs its token and a way for Slack to reach it.",
            "set SLACK_BOT_TOKEN, and SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)",
        )
    if "discord" in parts and not discord_is_configured(settings):
        raise SettingsError("Discord is not configured: the bot needs its token.", "set DISCORD_TOKEN")
