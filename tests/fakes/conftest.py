"""What the tests of the fakes start from."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack, Manifest

EVERYTHING = Manifest(
    scopes=frozenset(
        {
            *("app_mentions:read", "assistant:write", "chat:write", "commands", "reactions:write"),
            *("channels:history", "groups:history", "im:history", "mpim:history"),
            *("channels:read", "groups:read", "im:read", "mpim:read", "im:write"),
            *("files:read", "files:write", "users:read", "usergroups:read"),
        }
    ),
    events=frozenset(
        {
            *("app_mention", "message.im", "message.mpim", "message.channels", "message.groups"),
            *("app_home_opened", "agent_session_stopped"),
        }
    ),
    commands=frozenset({"/mcp"}),
    shortcuts=frozenset({"ask"}),
    agent=True,
)
"""An app that may do all that the fake knows, whatever the product asks for."""


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    """A workspace that nobody is in yet but the bot."""
    async with FakeSlack(manifest=EVERYTHING) as fake:
        yield fake


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    """One session for everything a test asks."""
    async with ClientSession() as opened:
        yield opened


@pytest.fixture
def client(slack: FakeSlack, session: ClientSession) -> AsyncWebClient:
    """The real client, without retries."""
    return AsyncWebClient(token=slack.bot_token, base_url=slack.url, session=session, retry_handlers=[])
