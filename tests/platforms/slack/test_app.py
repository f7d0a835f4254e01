"""Slack in the composition root."""

from __future__ import annotations

import pytest

from bot.errors import SettingsError
from bot.platforms.slack.app import open_slack
from bot.platforms.slack.diagnostics import SCOPES, missing
from bot.platforms.slack.listener import SlackListener
from tests.fakes.slack import FakeSlack


async def test_a_workspace_asks_slack_for_nothing_until_it_is_used() -> None:
    async with FakeSlack() as slack:
        async with open_slack(slack.bot_token, url=slack.url) as workspace:
            assert workspace.surface.key_prefixes == ("slack:",)
            with pytest.raises(SettingsError):
                SlackListener(workspace.workspaces, workspace.factory.app_api)
        assert not slack.calls


async def test_a_check_reads_user_and_scopes_of_the_token() -> None:
    async with FakeSlack() as slack:
        slack.installation.scopes.discard("files:write")
        async with open_slack(slack.bot_token, url=slack.url) as workspace:
            identity = await workspace.own.api.identity()
        assert (identity.team, identity.user) == (slack.workspace.team.id, slack.bot.id)
        granted = {scope.name for scope in SCOPES} & set(identity.scopes)
        assert granted
        assert [scope.name for scope in missing(identity.scopes)] == ["files:write"]


async def test_every_call_of_a_workspace_goes_over_one_session() -> None:
    async with FakeSlack() as slack, open_slack(slack.bot_token, url=slack.url) as workspace:
        for _ in range(3):
            await workspace.own.people.member(slack.user("Priya").id)
        assert workspace.own.api.client().session is workspace.own.api.session
