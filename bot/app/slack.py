"""Slack, as far as it is configured: something to draw with, and something to receive by."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import SecretStr

from bot.domain.checks import Check, CheckStatus
from bot.domain.metrics import MetricSink, null_sink
from bot.settings import Settings
from bot.storage.address import PostgresServer, read_address

if TYPE_CHECKING:
    from bot.app.runtime import Runtime
    from bot.platforms.slack.app import SlackApp
    from bot.platforms.slack.context import SlackLookups
    from bot.platforms.slack.listener import SlackListener


NO_TOKEN = "Slack can reach the bot, but without the bot's token nothing can be answered."  # noqa: S105


def is_configured(settings: Settings) -> bool:
    """There is a bot's token: Slack can be drawn in."""
    return settings.slack_bot_token is not None


def can_receive(settings: Settings) -> bool:
    """There is a way for Slack to reach the bot, too."""
    return is_configured(settings) and bool(settings.slack_app_token or settings.slack_signing_secret)


@asynccontextmanager
async def open_slack(settings: Settings, observe: MetricSink = null_sink) -> AsyncIterator[SlackApp]:
    """The workspace of the bot's token, which there is. `observe` counts."""
    workspaces, live = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.platforms.slack.{name}") for name in ("app", "streaming"))
    )
    named = settings.admins | settings.approvers
    async with workspaces.open_slack(
        _plain(settings.slack_bot_token),
        url=settings.slack_api_url,
        groups=frozenset(each for each in named if each.startswith("slack-group:")),
        streaming=live.Streaming(settings.slack_streaming),
        observe=observe,
    ) as workspace:
        yield workspace


async def examine_slack(settings: Settings) -> AsyncGenerator[Check, None]:
    """Look at everything of Slack that is set; at nothing if nothing is."""
    if not is_configured(settings):
        if settings.slack_app_token or settings.slack_signing_secret:
            yield Check("token", CheckStatus.BROKEN, NO_TOKEN, "set SLACK_BOT_TOKEN (xoxb-…)")
        return
    async with open_slack(settings) as workspace:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.slack.diagnostics")
        tokens = {"app_token": settings.slack_app_token, "signing_secret": settings.slack_signing_secret}
        plain = {name: _plain(secret) for name, secret in tokens.items()}
        async with aclosing(examining.diagnose(workspace.api, **plain)) as checks:
            async for check in checks:
                yield check


def share_limits(workspace: SlackApp, house: Runtime, settings: Settings) -> None:
    """Let Slack's limits be kept by all processes together, where there can be several."""
    if isinstance(read_address(settings.database_url), PostgresServer):
        workspace.share(house.office.stores.quotas)


def look_up_groups(workspace: SlackApp, house: Runtime) -> None:
    """Let user groups that profiles and rules name, as approvers or askers, be looked up like those of the settings.
    Before anything is driven: a rule that denies the members of a group something has to know them.
    """
    office = house.office

    async def named() -> frozenset[str]:
        profiles = await office.stores.profiles.profiles()
        return office.rules.named.union(*(profile.approvers for profile in profiles))

    workspace.people.also_ask_for(named)


async def build_lookups(workspace: SlackApp, house: Runtime) -> SlackLookups:
    """What Slack is told of the house beside the engine: opinions are kept, calls found, and Homes made."""
    desk, homes = await asyncio.gather(
        *(
            asyncio.to_thread(importlib.import_module, name)
            for name in ("bot.platforms.slack.context", "bot.app.slack_home")
        )
    )
    office = house.office

    async def team() -> str:
        return (await workspace.api.identity()).team

    made = homes.HomeTabBuilder(
        team,
        office.stores.archive,
        house.turn_log.get_approval,
        house.turn_log.get_elicitation,
        office.rules,
        office.rights,
        office.toolbox,
    )
    records: SlackLookups = desk.SlackLookups(office.stores.opinions.save, house.turn_log.get_approval, made.home)
    return records


def build_listener(workspace: SlackApp, settings: Settings, records: SlackLookups) -> SlackListener:
    """What receives from Slack, as the settings want it. Raises SettingsError if there is no way for Slack to call."""
    from bot.chat.audience import AudiencePolicy  # noqa: PLC0415 - loaded already, with the workspace

    return workspace.listener(
        app_token=_plain(settings.slack_app_token),
        signing_secret=_plain(settings.slack_signing_secret),
        manners=AudiencePolicy(settings.slack_follow_threads, settings.slack_guests, settings.slack_strangers),
        records=records,
    )


def _plain(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
