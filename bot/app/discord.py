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
from bot.domain.measurements import Observe, unobserved
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.house import House
    from bot.platforms.discord.listener import DiscordListener
    from bot.platforms.discord.office import DiscordOffice


def is_configured(settings: Settings) -> bool:
    """There is a bot's token: Discord can be drawn in, and reached."""
    return settings.discord_token is not None


@asynccontextmanager
async def opened_discord(settings: Settings, observe: Observe = unobserved) -> AsyncIterator[DiscordOffice]:
    """Discord as the bot whose token there is. `observe` counts."""
    offices = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.office")
    token = settings.discord_token.get_secret_value() if settings.discord_token else ""
    url, servers = settings.discord_api_url, settings.discord_servers
    opened = offices.opened_office(token, url=url, servers=servers, observe=observe)
    async with opened as office:
        yield office


async def examine_discord(settings: Settings) -> AsyncGenerator[Check, None]:
    """Look at everything of Discord that is set; at nothing if nothing is."""
    if not is_configured(settings):
        return
    async with opened_discord(settings) as office:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.check_up")
        async with aclosing(examining.check_up(office.rest, office.people)) as checks:
            async for check in checks:
                yield check


async def listener_of(office: DiscordOffice, house: House, settings: Settings) -> DiscordListener:
    """What receives from Discord, whenever no other process does."""
    desks, manners = await asyncio.gather(
        *(
            asyncio.to_thread(importlib.import_module, name)
            for name in ("bot.platforms.discord.desk", "bot.reception.manners")
        )
    )
    stores = house.office.stores
    return office.listener(
        manners=manners.Manners(settings.discord_follow_threads),
        records=desks.DiscordRecords(stores.opinions.keep, house.turn_log.approval, stores.archive.engaged),
        leases=stores.leases,
        holder=_this_process(),
    )


def _this_process() -> str:
    """A name that no other process has, and that tells an operator which one it is."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
