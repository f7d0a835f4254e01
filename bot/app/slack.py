"""Slack, as far as it is configured: something to draw with, and something to receive by."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import SecretStr

from bot.settings import Settings

if TYPE_CHECKING:
    from bot.platforms.slack.desk import Records
    from bot.platforms.slack.listener import SlackListener
    from bot.platforms.slack.workspace import SlackWorkspace


def is_configured(settings: Settings) -> bool:
    """There is a bot's token: Slack can be drawn in."""
    return settings.slack_bot_token is not None


def can_receive(settings: Settings) -> bool:
    """There is a way for Slack to reach the bot, too."""
    return is_configured(settings) and bool(settings.slack_app_token or settings.slack_signing_secret)


@asynccontextmanager
async def opened_slack(settings: Settings) -> AsyncIterator[SlackWorkspace]:
    """The workspace of the bot's token, which there is."""
    workspaces, live = await asyncio.gather(
        *(asyncio.to_thread(importlib.import_module, f"bot.platforms.slack.{name}") for name in ("workspace", "live"))
    )
    named = settings.admins | settings.approvers
    async with workspaces.opened_workspace(
        _plain(settings.slack_bot_token),
        url=settings.slack_api_url,
        groups=frozenset(each for each in named if each.startswith("slack-group:")),
        streaming=live.Streaming(settings.slack_streaming),
        processes=settings.slack_processes,
    ) as workspace:
        yield workspace


def listener_of(workspace: SlackWorkspace, settings: Settings, records: Records) -> SlackListener:
    """What receives from Slack, as the settings want it. Raises SettingsError if there is no way for Slack to call."""
    from bot.platforms.slack.rights import Manners  # noqa: PLC0415 - loaded already, with the workspace

    return workspace.listener(
        app_token=_plain(settings.slack_app_token),
        signing_secret=_plain(settings.slack_signing_secret),
        manners=Manners(settings.slack_follow_threads, settings.slack_guests, settings.slack_strangers),
        records=records,
    )


def _plain(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""
