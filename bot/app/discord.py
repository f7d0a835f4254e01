"""Discord, as far as it is configured: something to draw with, and something to receive by."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from bot.domain.checks import Check
from bot.domain.metrics import MetricSink, null_sink
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.runtime import Runtime
    from bot.platforms.discord.app import DiscordApp
    from bot.platforms.discord.listener import DiscordListener


def is_configured(settings: Settings) -> bool:
    """There is a bot's token: Discord can be drawn in, and reached."""
    return settings.discord_token is not None


@asynccontextmanager
async def open_discord(settings: Settings, observe: MetricSink = null_sink) -> AsyncIterator[DiscordApp]:
    """Discord as the bot whose token there is. `observe` counts."""
    offices = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.app")
    token = settings.discord_token.get_secret_value() if settings.discord_token else ""
    url, servers = settings.discord_api_url, settings.discord_servers
    opened = offices.open_discord(token, url=url, servers=servers, observe=observe)
    async with opened as office:
        yield office


async def examine_discord(settings: Settings) -> AsyncGenerator[Check, None]:
    """Look at everything of Discord that is set; at nothing if nothing is."""
    if not is_configured(settings):
        return
    async with open_discord(settings) as office:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.diagnostics")
        async with aclosing(examining.diagnose(office.rest, office.people)) as checks:
            async for check in checks:
                yield check


async def build_listener(office: DiscordApp, house: Runtime, settings: Settings) -> DiscordListener:
    """What receives from Discord, whenever no other process does."""
    desks, manners = await asyncio.gather(
        *(
            asyncio.to_thread(importlib.import_module, name)
            for name in ("bot.platforms.discord.context", "bot.chat.audience")
        )
    )
    stores = house.office.stores
    return office.listener(
        manners=manners.AudiencePolicy(settings.discord_follow_threads),
        records=desks.DiscordLookups(
            stores.opinions.save, house.turn_log.get_approval, stores.archive.active_conversations
        ),
        leases=stores.leases,
        holder=_this_process(),
    )


def _this_process() -> str:
    """A name that no other process has, and that tells an operator which one it is."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
