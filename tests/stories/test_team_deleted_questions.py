"""Questions whose messages are deleted, on Slack and on Discord."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.parts import ask_for, call, say, tool
from tests.stories.team import Team

CREATE = "jira__create_issue"


@pytest.fixture
def platform(team: Team) -> Any:
    """The fake of the platform, which reports deletions."""
    fake = getattr(team, "slack", None) or getattr(team, "discord", None)
    if fake is None:
        pytest.skip("the plain platform reports no deletions")
    return fake


async def test_a_deleted_question_ends_its_turn_and_its_waiting_call(team: Team, platform: Any) -> None:
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Hello.")]
    async with team.waiting_on("file the secret plan") as (talk, card):
        before = team.screen(card)
        platform.delete(talk.question)
        await team.until(lambda: "Cancelled. Not run." in team.words(card))
        await team.press(team.sam, card, "Approve", old=before)
        await team.until(lambda: team.private_replies(team.sam))
        await team.reads(talk, "Stopped by the deletion of the question.")
        assert "secret plan" not in team.visible_text(talk)
        team.go_on(talk, f"{team.mention} hello")
        await team.reads(talk, "Hello.")
        assert "secret plan" not in str(team.model.requests[-1])
    assert team.toolbox.calls == []
