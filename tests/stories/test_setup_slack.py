"""`countersign setup slack`: a person at a terminal, who creates the app, copies tokens, and invites the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.slack import Channel, FakeSlack, User
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.setup_program import SetupFolder, answers


class Company:
    """The workspace, and the folder of the setup."""

    def __init__(self, slack: FakeSlack, folder: Path) -> None:
        self.slack = slack
        self.priya: User = slack.user("Priya", owner=True, email="priya@acme.example")
        self.incidents: Channel = slack.channel("incidents", self.priya, with_bot=False)
        self.setup = SetupFolder(folder, SLACK_API_URL=slack.url)

    def invite(self) -> None:
        self.incidents.members.append(self.slack.bot.id)


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    async with FakeSlack() as slack:
        slack.pace.strict = False
        yield Company(slack, tmp_path)


async def creates_the_app(terminal: ProgramOnTerminal) -> None:
    await answers(terminal, "Name of the app")
    await answers(terminal, "Which features shall it have?")
    await answers(terminal, "How shall Slack reach the bot?")
    await terminal.shows("https://api.slack.com/apps?new_app=1&manifest_json=")
    await answers(terminal, "Press Enter when the app is installed")


async def test_a_person_sets_up_slack(company: Company) -> None:
    async with company.setup.at_terminal("slack") as terminal:
        await creates_the_app(terminal)
        await answers(terminal, "Bot User OAuth Token", company.slack.bot_token)
        await answers(terminal, "is this the right workspace?")
        await answers(terminal, "App-level token", company.slack.app.app_token)
        await answers(terminal, "You in Slack", company.priya.id)
        await answers(terminal, "is that you?")
        await answers(terminal, "Who else may approve calls?")
        await answers(terminal, "Channel", "#incidents")
        await terminal.shows("/invite @countersign", "Waiting for it")
        company.invite()
        await answers(terminal, "introduce itself in #incidents?")
        await answers(terminal, "Start the bot now?", "n", last=True)
        assert await terminal.ended() == 0
    assert company.setup.values == {
        "SLACK_BOT_TOKEN": company.slack.bot_token,
        "SLACK_APP_TOKEN": company.slack.app.app_token,
        "ADMINS": f"slack:{company.priya.id}",
    }
    assert company.setup.mode == 0o600
    assert company.slack.bot_token.encode() not in terminal.raw
    assert company.slack.app.app_token.encode() not in terminal.raw
    (message,) = company.slack.posted(company.incidents)
    assert "what can you do?" in str(message.blocks)
