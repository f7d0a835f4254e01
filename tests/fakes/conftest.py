"""What the tests of the fakes start from."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.discord import Channel, FakeDiscord, Message, User
from tests.fakes.discord_api import DiscordApi
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


@pytest.fixture
async def discord() -> AsyncIterator[FakeDiscord]:
    """A server that nobody is in yet but the bot and an owner."""
    async with FakeDiscord() as fake:
        yield fake


@pytest.fixture
def api(discord: FakeDiscord, session: ClientSession) -> DiscordApi:
    """Plain HTTP to the fake Discord, with the bot's token."""
    return DiscordApi(discord, session)


@pytest.fixture
async def ana(discord: FakeDiscord, api: DiscordApi) -> User:
    """Somebody in a Discord server with a command."""
    option = {"type": 3, "name": "s", "description": "x"}
    command = {"name": "mcp", "description": "x", "options": [option]}
    assert (await api.call("PUT", f"/applications/{discord.app.id}/commands", [command])).status == 200
    return discord.user("Ana")


@pytest.fixture
def room(discord: FakeDiscord) -> Channel:
    """A channel of the Discord server."""
    return discord.channel("general")


@pytest.fixture
async def card(discord: FakeDiscord, api: DiscordApi, room: Channel) -> Message:
    """A message with a button."""
    button = {"type": 2, "style": 1, "label": "Approve", "custom_id": "cs:approve"}
    await api.post(room, {"content": "card", "components": [{"type": 1, "components": [button]}]})
    return discord.posted(room)[-1]
