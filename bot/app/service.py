"""`countersign run`: checks the settings, then runs the configured components until SIGTERM.

`bot.app.runtime` builds the components.
"""

from __future__ import annotations

import asyncio
import logging
import signal

from bot.app.database import use_database
from bot.app.discord import is_configured as discord_is_configured
from bot.app.models import select_model
from bot.app.operator_files import read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.app.slack import can_receive as slack_can_receive
from bot.app.slack import check_settings as check_slack_settings
from bot.app.slack import is_configured as slack_is_configured
from bot.app.web import check_settings as check_web_settings
from bot.app.web import is_configured as web_is_configured
from bot.domain.locales import Locale, use_locale
from bot.errors import SettingsError
from bot.folders import shell_command
from bot.logs import log_to_stderr
from bot.settings import Settings

log = logging.getLogger(__name__)

PARTS = ("slack", "discord", "worker", "web")


async def run(settings: Settings, only: frozenset[str] = frozenset()) -> int:
    """Run the named components, or all configured ones, until SIGTERM or SIGINT. Raises CountersignError."""
    parts = only or _configured_parts(settings)
    _check(parts, settings)
    log_to_stderr(settings.log_level, settings.log_format)
    choice = select_model(settings)
    files = read_operator_files(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopped.set)
    from bot.app.runtime import open_program  # noqa: PLC0415 - the settings are checked before a second of loading

    locale = Locale(settings.language, settings.time_zone)
    with use_database(settings, "countersign run", as_bot=True) as use, use_locale(locale):
        async with open_program(settings, files, choice, parts, use, on_listener_end=stopped.set) as runtime:
            if parts == {"worker"} and not only:
                log.info(
                    "neither Slack, Discord nor the web is set up, so nobody reaches this bot: "
                    "`%s` connects one, `%s` talks in this terminal",
                    shell_command("setup"),
                    shell_command("chat"),
                )
            await runtime.run_until(stopped)
            log.info("stopping")
    return 0


def _configured_parts(settings: Settings) -> frozenset[str]:
    receiving = {
        "slack": slack_is_configured(settings),
        "discord": discord_is_configured(settings),
        "web": web_is_configured(settings),
    }
    return frozenset({"worker", *(name for name, configured in receiving.items() if configured)})


def _check(parts: frozenset[str], settings: Settings) -> None:
    """Raise SettingsError that names every component which cannot run."""
    wrong = [f"There is no part called {part!r}." for part in sorted(parts.difference(PARTS))]
    if wrong:
        raise SettingsError(" ".join(wrong), f"use --only {','.join(sorted(PARTS))}")
    check_operator_secrets(settings)
    check_slack_settings(settings)
    if "web" in parts:
        check_web_settings(settings)
    if "slack" in parts and slack_is_configured(settings) and not slack_can_receive(settings):
        raise SettingsError(
            "Slack has no way to reach the bot.", "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)"
        )
    if "slack" in parts and not slack_is_configured(settings):
        raise SettingsError(
            "Slack is not fully configured: the bot needs its token and a way for Slack to reach it.",
            "set SLACK_BOT_TOKEN, and SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP)",
        )
    if "discord" in parts and not discord_is_configured(settings):
        raise SettingsError("Discord is not configured: the bot needs its token.", "set DISCORD_TOKEN")
