"""Slack, put together: what draws in every process, and what receives where it is wanted.

Called by the composition root, which hands in plain values; entered before use and left when nothing draws any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.domain.measurements import Observe, unobserved
from bot.platforms.slack.desk import SlackRecords
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.live import Streaming
from bot.platforms.slack.pacing import Pacing
from bot.platforms.slack.people import People
from bot.platforms.slack.surface import SlackSurface
from bot.platforms.slack.web_api import API_URL, WebApi
from bot.reception.manners import Manners
from bot.stores import Quotas


@dataclass(frozen=True, slots=True)
class SlackWorkspace:
    """One workspace as the bot: `surface` draws; `api` tells a check-up whom the token speaks for and what it may."""

    api: WebApi
    people: People
    surface: SlackSurface

    def share(self, quotas: Quotas) -> None:
        """Keep Slack's limits together with other processes of the same token."""
        self.api.pacing.share(quotas)

    def listener(
        self,
        *,
        app_token: str = "",
        signing_secret: str = "",
        manners: Manners | None = None,
        records: SlackRecords | None = None,
    ) -> SlackListener:
        """What receives: by Socket Mode with an app token, over HTTP (`SlackListener.hook`) with a signing secret.
        Raises SettingsError if there is neither.
        """
        return SlackListener(
            self.api, self.people, app_token=app_token, signing_secret=signing_secret, manners=manners, records=records
        )


@asynccontextmanager
async def opened_workspace(
    token: str,
    *,
    url: str = API_URL,
    groups: frozenset[str] = frozenset(),
    streaming: Streaming = Streaming.DIRECT,
    observe: Observe = unobserved,
) -> AsyncIterator[SlackWorkspace]:
    """The workspace of a bot token. `groups` are the user groups that settings name (`slack-group:S…`). `observe`
    counts how long Slack's limits make calls wait. Asks Slack for nothing until it is used.
    """
    async with WebApi(token, url=url, pacing=Pacing(account=_account(token), observe=observe)) as api:
        people = People(api, groups)
        yield SlackWorkspace(api, people, SlackSurface(api, people, streaming=streaming))


def _account(token: str) -> str:
    """Whose limits these are: the token's, as a digest that says nothing of it. Slack counts by app and workspace."""
    return f"slack:{hashlib.sha256(token.encode()).hexdigest()[:16]}"
