"""Discord, put together: what draws in every process, and what receives where it is wanted.

Called by the composition root, which hands in plain values; entered before use and left when nothing draws any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.chat.audience import AudiencePolicy
from bot.domain.metrics import MetricSink, null_sink
from bot.platforms.discord.context import DiscordLookups
from bot.platforms.discord.listener import DiscordListener
from bot.platforms.discord.rest import API_URL, Rest
from bot.platforms.discord.surface import DiscordSurface
from bot.platforms.discord.users import UserDirectory
from bot.ports import Leases


@dataclass(frozen=True, slots=True)
class DiscordApp:
    """Discord as the bot: `surface` draws; `rest` and `people` tell a check-up whom the token speaks for, and where."""

    rest: Rest
    people: UserDirectory
    surface: DiscordSurface

    def listener(
        self,
        *,
        leases: Leases,
        holder: str,
        manners: AudiencePolicy | None = None,
        records: DiscordLookups | None = None,
    ) -> DiscordListener:
        """What receives, in one process at a time: `leases` says in which, `holder` names this one."""
        return DiscordListener(self.rest, self.people, leases, holder, manners=manners, records=records)


@asynccontextmanager
async def open_discord(
    token: str, *, url: str = API_URL, servers: frozenset[str] = frozenset(), observe: MetricSink = null_sink
) -> AsyncIterator[DiscordApp]:
    """The office of a bot's token. `servers` are the ids of those that are served; none named, all the bot is in.
    `observe` counts how long Discord asks to be left alone. Asks Discord for nothing until it is used.
    """
    async with Rest(token, url=url, observe=observe) as rest:
        people = UserDirectory(rest, servers)
        yield DiscordApp(rest, people, DiscordSurface(rest, people))
