"""Slack, put together: what draws in every process, and what receives where it is wanted.

Called by the composition root, which hands in plain values; entered before use and left when nothing draws any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.platforms.slack.desk import SlackRecords
from bot.platforms.slack.listener import SlackListener
from bot.platforms.slack.live import Streaming
from bot.platforms.slack.pacing import Pacing
from bot.platforms.slack.people import People
from bot.platforms.slack.surface import SlackSurface
from bot.platforms.slack.web_api import API_URL, WebApi
from bot.reception.manners import Manners


@dataclass(frozen=True, slots=True)
class SlackWorkspace:
    """One workspace as the bot: `surface` draws; `api` tells a check-up whom the token speaks for and what it may."""

    api: WebApi
    people: People
    surface: SlackSurface

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
    processes: int = 1,
) -> AsyncIterator[SlackWorkspace]:
    """The workspace of a bot token. `groups` are the user groups that settings name (`slack-group:S…`), `processes` how
    many processes share the token and with it Slack's limits. Asks Slack for nothing until it is used.
    """
    async with WebApi(token, url=url, pacing=Pacing(processes=processes)) as api:
        people = People(api, groups)
        yield SlackWorkspace(api, people, SlackSurface(api, people, streaming=streaming))
