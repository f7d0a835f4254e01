"""Discord: its surface and its listener, as far as the settings configure them."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from bot.app.process import end_check
from bot.app.secrets import secret_value
from bot.chat.users import AudiencePolicy
from bot.domain.approvals import APPROVERS
from bot.domain.conversations import ConversationKey
from bot.domain.metrics import MetricSink, null_sink
from bot.domain.policies import Rule
from bot.engine.policy.approvers import Approvers
from bot.engine.possible_approvers import check_deliveries
from bot.engine.surfaces import Surfaces
from bot.errors import CountersignError
from bot.examination import Check, CheckStatus
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.components import Runtime
    from bot.platforms.discord.app import DiscordApp
    from bot.platforms.discord.listener import DiscordListener


def is_configured(settings: Settings) -> bool:
    """Return True if a bot token is set, which both delivery and the gateway need."""
    return settings.discord_token is not None


@asynccontextmanager
async def open_discord(settings: Settings, observe: MetricSink = null_sink) -> AsyncIterator[DiscordApp]:
    """Open Discord with the configured bot token, which must be set. `observe` receives metrics."""
    discord_app = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.app")
    async with discord_app.open_discord(
        secret_value(settings.discord_token),
        url=settings.discord_api_url,
        servers=settings.discord_servers,
        observe=observe,
    ) as app:
        yield app


async def examine_discord(settings: Settings, rules: Sequence[Rule] = ()) -> AsyncGenerator[Check, None]:
    """Check all Discord settings, and the roles in the operator's rules on the first server; no checks if none is
    set.
    """
    if not is_configured(settings):
        return
    async with open_discord(settings) as app:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.diagnostics")
        async with aclosing(examining.diagnose(app.rest, app.people)) as checks:
            async for check in checks:
                yield check
        if not any(APPROVERS in rule.requirements.deliver for rule in rules):
            return
        try:
            servers = await app.people.servers()
        except CountersignError:
            return  # said above
        approvers = Approvers(settings.admins, settings.approvers)
        for server in servers[:1]:
            here = ConversationKey("discord", server, "", "")
            async with aclosing(check_deliveries(rules, approvers, app.surface, here)) as checks:
                async for check in checks:
                    yield check


async def examine_discord_channel(settings: Settings, channel: ConversationKey) -> Check:
    """Check that the bot may post in a channel of Discord."""
    if not is_configured(settings):
        what = "OPS_CHANNEL is in Discord, which is not configured."
        return Check("ops channel", CheckStatus.BROKEN, what, "set DISCORD_TOKEN")
    async with open_discord(settings) as app:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.discord.diagnostics")
        check: Check = await examining.diagnose_channel(app.rest, app.people, channel)
        return check


def build_listener(app: DiscordApp, runtime: Runtime, settings: Settings) -> DiscordListener:
    """Build the listener, which receives while no other process holds the gateway lease."""
    from bot.chat.approval_inbox import PendingCallReader  # noqa: PLC0415 - loaded with the app
    from bot.chat.context import Lookups  # noqa: PLC0415 - loaded with the app
    from bot.platforms.discord.listener import DiscordListener  # noqa: PLC0415 - loaded with the app

    stores = runtime.services.stores
    members = Surfaces((app.surface,))
    reader = PendingCallReader(stores.reporting, runtime.turn_log, runtime.services.rules, app.surface, members=members)
    return DiscordListener(
        app.rest,
        app.people,
        stores.leases,
        runtime.services.faults.reporter,
        audience=AudiencePolicy(settings.discord_follow_threads),
        records=Lookups(
            opinion=stores.feedback.save,
            approval=runtime.turn_log.get_approval,
            pending_calls=reader.read,
            active_conversations=stores.reporting.active_conversations,
            locales=runtime.services.locales,
        ),
        quotas=stores.quotas,
        has_ended=end_check(settings.database_url),
    )
