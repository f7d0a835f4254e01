"""Is Slack set up, and if not, what is missing and what for: what `countersign doctor` looks at, one after another.

Nothing is posted. The socket that Slack offers is not opened: every connection more would take events from a bot that
runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from time import monotonic

from bot.domain.checks import Check, CheckStatus
from bot.errors import CountersignError
from bot.platforms.slack.scopes import missing
from bot.platforms.slack.socket_mode import socket_address
from bot.platforms.slack.web_api import Identity, WebApi

WAYS = "set SLACK_APP_TOKEN (Socket Mode) or SLACK_SIGNING_SECRET (HTTP), or run this process with --only worker"
UNSAID = "Slack did not say what the token may do, so its scopes were not looked at."
SECRET = "Requests are taken at /slack/events. Whether the secret is the app's shows when the first one comes."  # noqa: S105


async def diagnose(api: WebApi, *, app_token: str = "", signing_secret: str = "") -> AsyncGenerator[Check, None]:
    """Look at the bot's token, its scopes, and the ways by which Slack can reach the bot."""
    began = monotonic()
    try:
        identity = await api.identity()
    except CountersignError as error:
        yield Check("token", CheckStatus.BROKEN, error.cause, error.fix)
    else:
        yield _of_token(identity, monotonic() - began)
        for check in _of_scopes(identity):
            yield check
    if app_token:
        yield await _of_socket(api, app_token)
    if signing_secret:
        yield Check("HTTP", CheckStatus.SKIPPED, SECRET)
    if not (app_token or signing_secret):
        yield Check(
            "way in", CheckStatus.BROKEN, "Slack has no way to reach the bot: it can draw, but hears nothing.", WAYS
        )


def _of_token(identity: Identity, seconds: float) -> Check:
    where = f"{identity.name} in {identity.url or identity.team} ({identity.team})"
    if not identity.bot:
        fix = "set SLACK_BOT_TOKEN to the app's Bot User OAuth Token (xoxb-…)"
        return Check("token", CheckStatus.BROKEN, f"It is a person's, not a bot's: {where}.", fix, seconds)
    return Check("token", CheckStatus.WELL, f"It is {where}.", seconds=seconds)


def _of_scopes(identity: Identity) -> list[Check]:
    if not identity.scopes:
        return [Check("scopes", CheckStatus.DOUBTFUL, UNSAID)]
    lacking = missing(identity.scopes)
    return [
        Check(
            f"scope {scope.name}",
            CheckStatus.BROKEN,
            f"It is missing: without it {scope.without}.",
            f"add {scope.name} under OAuth & Permissions of the app, install it again, and set the new SLACK_BOT_TOKEN",
        )
        for scope in lacking
    ] or [Check("scopes", CheckStatus.WELL, "All that are used are there.")]


async def _of_socket(api: WebApi, app_token: str) -> Check:
    began = monotonic()
    try:
        await socket_address(api, app_token)
    except CountersignError as error:
        return Check("Socket Mode", CheckStatus.BROKEN, error.cause, error.fix)
    return Check("Socket Mode", CheckStatus.WELL, "Slack offers a connection.", seconds=monotonic() - began)
