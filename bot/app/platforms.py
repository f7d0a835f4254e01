"""The chat platforms that are configured: what they draw with, and what receives from them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.app.discord import build_listener as discord_listener_of
from bot.app.discord import is_configured as discord_is_configured
from bot.app.discord import open_discord
from bot.app.runtime import Runtime
from bot.app.slack import build_listener as slack_listener_of
from bot.app.slack import build_lookups, look_up_groups, open_slack, share_limits
from bot.app.slack import is_configured as slack_is_configured
from bot.domain.metrics import MetricSink
from bot.ports import Listener, Surface
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.platforms.discord.app import DiscordApp
    from bot.platforms.slack.app import SlackApp
    from bot.web.hooks import Hook


@dataclass(slots=True)
class Listeners:
    """What receives, by the name of its part, and what waits for requests of platforms."""

    listeners: dict[str, Listener] = field(default_factory=dict)
    hooks: list[Hook] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Platforms:
    """Those of the settings; None for one that is not configured."""

    slack: SlackApp | None
    discord: DiscordApp | None

    @property
    def surfaces(self) -> list[Surface]:
        """What draws in them."""
        return [each.surface for each in (self.slack, self.discord) if each is not None]

    def attach(self, house: Runtime, settings: Settings) -> None:
        """Let them know the house that they draw for, before anything is driven."""
        if self.slack is not None:
            share_limits(self.slack, house, settings)
            look_up_groups(self.slack, house)

    async def receiving(self, parts: frozenset[str], house: Runtime, settings: Settings) -> Listeners:
        """What receives from those whose part is wanted. Raises SettingsError."""
        found = Listeners()
        if self.slack is not None and "slack" in parts:
            slack = slack_listener_of(self.slack, settings, await build_lookups(self.slack, house))
            found.listeners["slack"] = slack
            found.hooks += [slack.hook] if slack.hook is not None else []
        if self.discord is not None and "discord" in parts:
            found.listeners["discord"] = await discord_listener_of(self.discord, house, settings)
        return found


@asynccontextmanager
async def open_platforms(settings: Settings, observe: MetricSink) -> AsyncIterator[Platforms]:
    """The platforms, for as long as the block runs."""
    async with AsyncExitStack() as stack:
        slack = discord = None
        if slack_is_configured(settings):
            slack = await stack.enter_async_context(open_slack(settings, observe))
        if discord_is_configured(settings):
            discord = await stack.enter_async_context(open_discord(settings, observe))
        yield Platforms(slack, discord)
