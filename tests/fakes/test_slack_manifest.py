"""The app is registered as the manifest that is shipped says."""

from __future__ import annotations

import pytest

from tests.fakes.slack import FakeSlack


async def test_the_app_has_what_the_shipped_manifest_asks_for() -> None:
    async with FakeSlack() as slack:
        assert {"app_mentions:read", "chat:write", "users:read"} <= slack.installation.scopes
        assert {"app_mention", "message.im"} <= slack.app.events
        assert "/mcp" in slack.app.commands
        assert slack.app.shortcuts
        assert slack.app.agent


async def test_what_it_does_not_register_there_is_not() -> None:
    async with FakeSlack() as slack:
        priya = slack.user("Priya")
        with pytest.raises(LookupError, match="/shout is not a valid command"):
            await slack.command(priya, "/shout", "", slack.dm(priya))
        with pytest.raises(LookupError, match="there is no shortcut shout"):
            await slack.shortcut(priya, "shout")
