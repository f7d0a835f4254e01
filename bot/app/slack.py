"""Slack, as far as it is configured: something to draw with, and something to receive by."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import SecretStr

from bot.domain.checks import Check, Finding
from bot.domain.measurements import Observe, unobserved
from bot.settings import Settings
from bot.storage.address import PostgresServer, read_address

if TYPE_CHECKING:
    from bot.app.house import House
    from bot.platforms.slack.desk import SlackRecords
    from bot.platforms.slack.listener import SlackListener
    from bot.platforms.slack.workspace import SlackWorkspace


NO_TOKEN = "Slack can reach the bot, but without the bot's token nothing can be answered."  # noqa: S105


def is_configured(settings: Settings) -> bool:
    """There is a bot's token: Slack can be drawn in."""
    return settings.slack_bot_token is not None


def can_receive(settings: Settings) -> bool:
    """There is a way for Slack to reach the bot, too."""
    return is_configured(settings) and bool(settings.slack_app_token or settings.slack_signing_secret)


@asynccontextmanager
async def opened_slack(settings: Settings, observe: Observe = unobserved) -> AsyncIterator[SlackWorkspace]:
    """The workspace of the bot's token, which there is. `observe` counts."""
    workspaces, live = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.platforms.slack.{name}") for name in ("workspace", "live"))
    )
    named = settings.admins | settings.approvers
    async with workspaces.opened_workspace(
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
            yield Check("token", Finding.BROKEN, NO_TOKEN, "set SLACK_BOT_TOKEN (xoxb-…)")
        return
    async with opened_slack(settings) as workspace:
        examining = await asyncio.to_thread(importlib.import_module, "bot.platforms.slack.check_up")
        tokens = {"app_token": settings.slack_app_token, "signing_secret": settings.slack_signing_secret}
        plain = {name: _plain(secret) for name, secret in tokens.items()}
        async with aclosing(examining.check_up(workspace.api, **plain)) as checks:
            async for check in checks:
                yield check


def share_limits(workspace: SlackWorkspace, house: House, settings: Settings) -> None:
    """Let Slack's limits be kept by all processes together, where there can be several."""
    if isinstance(read_address(settings.database_url), PostgresServer):
        workspace.share(house.office.stores.quotas)


def look_up_groups(workspace: SlackWorkspace, house: House) -> None:
    """Let user groups that profiles and rules name, as approvers or askers, be looked up like those of the settings.
    Before anything is driven: a rule that denies the members of a group something has to know them.
    """
    office = house.office

    async def named() -> frozenset[str]:
        profiles = await office.stores.profiles.profiles()
        return office.rules.named.union(*(profile.approvers for profile in profiles))

    workspace.people.also_ask_for(named)


async def records_of(workspace: SlackWorkspace, house: House) -> SlackRecords:
    """What Slack is told of the house beside the engine: opinions are kept, calls found, and Homes made."""
    desk, homes = await asyncio.gather(
        *(
            asyncio.to_thread(importlib.import_module, name)
            for name in ("bot.platforms.slack.desk", "bot.app.slack_home")
        )
    )
    office = house.office

    async def team() -> str:
        return (await workspace.api.identity()).team

    made = homes.Homes(
        team,
        office.stores.archive,
        house.turn_log.approval,
        house.turn_log.inquiry,
        office.rules,
        office.rights,
        office.toolbox,
    )
    records: SlackRecords = desk.SlackRecords(office.stores.opinions.keep, house.turn_log.approval, made.home)
    return records


def listener_of(workspace: SlackWorkspace, settings: Settings, records: SlackRecords) -> SlackListener:
    """What receives from Slack, as the settings want it. Raises SettingsError if there is no way for Slack to call."""
    from bot.reception.manners import Manners  # noqa: PLC0415 - loaded already, with the workspace

    return workspace.listener(
        app_token=_plain(settings.slack_app_token),
        signing_secret=_plain(settings.slack_signing_secret),
        manners=Manners(settings.slack_follow_threads, settings.slack_guests, settings.slack_strangers),
        records=records,
    )


def _plain(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
