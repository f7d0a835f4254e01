"""Slack, put together: what draws in every process, and what receives where it is wanted.

Called by the composition root, which hands in plain values; entered before use and left when nothing draws any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.chat.audience import AudiencePolicy
from bot.domain.metrics import MetricSink, null_sink
from bot.platforms.slack.context import SlackLookups
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.rate_limits import RateLimiter
from bot.platforms.slack.streaming import Streaming
from bot.platforms.slack.surface import SlackSurface
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import API_URL, WebApi
from bot.ports import Quotas


@dataclass(frozen=True, slots=True)
class SlackApp:
    """One workspace as the bot: `surface` draws; `api` tells a check-up whom the token speaks for and what it may."""

    api: WebApi
    people: UserDirectory
    surface: SlackSurface

    def share(self, quotas: Quotas) -> None:
        """Keep Slack's limits together with other processes of the same token."""
        self.api.pacing.share(quotas)

    def listener(
        self,
        *,
        app_token: str = "",
        signing_secret: str = "",
        manners: AudiencePolicy | None = None,
        records: SlackLookups | None = None,
    ) -> SlackListener:
        """What receives: by Socket Mode with an app token, over HTTP (`SlackListener.hook`) with a signing secret.
        Raises SettingsError if there is neither.
        """
        return SlackListener(
            self.api, self.people, app_token=app_token, signing_secret=signing_secret, manners=manners, records=records
        )


@asynccontextmanager
async def open_slack(
    token: str,
    *,
    url: str = API_URL,
    groups: frozenset[str] = frozenset(),
    streaming: Streaming = Streaming.DIRECT,
    observe: MetricSink = null_sink,
) -> AsyncIterator[SlackApp]:
    """The workspace of a bot token. `groups` are the user groups that settings name (`slack-group:S…`). `observe`
    counts how long Slack's limits make calls wait. Asks Slack for nothing until it is used.
    """
    async with WebApi(token, url=url, pacing=RateLimiter(account=_account(token), observe=observe)) as api:
        people = UserDirectory(api, groups)
        yield SlackApp(api, people, SlackSurface(api, people, streaming=streaming))


def _account(token: str) -> str:
    """Whose limits these are: the token's, as a digest that says nothing of it. Slack counts by app and workspace."""
    return f"slack:{hashlib.sha256(token.encode()).hexdigest()[:16]}"
