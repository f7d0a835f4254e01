"""Features of Slack alone, as users meet them: streams and their own stop, two events for one message, other
organizations, workspaces without the newest features. `test_teams` has the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.fakes.parts import ask_for, call, say, tool
from tests.fakes.slack import Team as Organisation
from tests.postgres import Server
from tests.stories.slack_team import SlackTeam, a_slack_team
from tests.stories.team import Talk, never

CREATE = "jira__create_issue"
FINAL = "AI answer"
STOPPED = "Stopped by "


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[SlackTeam]:
    async with a_slack_team(tmp_path) as team:
        yield team


async def test_slacks_own_stop_ends_the_stream_and_the_work(team: SlackTeam) -> None:
    dm = team.slack.dm(team.priya)
    team.toolbox.add(tool("web__read", read_only=True), never)
    team.allowed = {"web__read"}
    team.model.script = [ask_for(call("web__read"), text="I look.")]
    async with team.at_work():
        talk = team.ask_directly("read it")
        await team.until(lambda: [message for message in team.messages(talk) if message.stream])
        team.slack.stop(team.priya, dm, talk.question.ts)
        await team.reads(talk, STOPPED)
    assert all(message.stream is None or not message.stream.open for message in team.messages(talk))
    assert team.slack.status(dm, talk.question.ts) == ""
    assert "stopped while running" in team.visible_text(talk)


async def test_ten_streams_at_once_stay_below_the_limits_of_slack_and_end_complete(team: SlackTeam) -> None:
    people = [team.slack.user(f"Person {number}") for number in range(10)]
    team.pause = asyncio.sleep
    team.model.script = [say(f"Answer {number}. " + "word " * 200 + "The end.") for number in range(10)]
    async with team.at_work():
        team.keep_to_limits()
        talks = [Talk(team.slack.say(user, team.slack.dm(user), "why?")) for user in people]
        for talk in talks:
            await team.reads(talk, FINAL)
            (answer,) = team.messages(talk)
            assert "The end." in team.words(answer)
    assert team.slack.calls.of("chat.startStream")
    assert team.failed_calls() == []


@pytest.mark.parametrize(
    "absent",
    [
        ("chat.startStream", "chat.appendStream", "chat.stopStream"),
        ("agents.sessions.setStatus", "agents.sessions.rename", "assistant.threads.setStatus"),
    ],
    ids=["no streams", "no agents"],
)
async def test_a_workspace_without_the_newest_features_gets_the_same_answers(
    team: SlackTeam, absent: tuple[str, ...]
) -> None:
    team.slack.absent.update(absent)
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One"), text="I file it."), say("Filed, at last.")]
    team.allowed = {CREATE}
    async with team.at_work():
        talk = team.ask_directly("file it")
        await team.reads(talk, FINAL)
    said = team.visible_text(talk)
    assert said.count("I file it.") == said.count("Filed, at last.") == 1
    assert team.toolbox.names == [CREATE]


async def test_a_user_of_another_organisation_neither_asks_nor_approves(team: SlackTeam) -> None:
    stella = team.slack.user("Stella", team=Organisation("T0OTHER001", "other"), stranger=True, admin=True)
    team.channel.members.append(stella.id)
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One"))]
    async with team.waiting_on("file it") as (_talk, card):
        await team.press(stella, card, "Approve")
        await team.until(lambda: len(team.private_replies(stella)) == 1)
        team.ask("file another", by=stella)
        await team.until(lambda: len(team.private_replies(stella)) == 2)
    assert team.toolbox.calls == []
    assert len(team.model.requests) == 1


@pytest.mark.parametrize("mention_first", [True, False])
async def test_the_two_events_of_a_mention_are_one_question_in_whichever_order_they_reach_two_processes(
    team: SlackTeam, postgres: Server, mention_first: bool
) -> None:
    team.slack.app.mention_first = mention_first
    team.server = await asyncio.to_thread(postgres.fresh)
    team.model.script = [say("Once."), say("Twice.")]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(team.at_work())
        talk = team.ask("why?")
        await team.reads(talk, FINAL)
        await team.deliver_again(talk)
    assert len([each for each in team.slack.sent_deliveries if each.event.get("ts") == talk.question.ts]) == 2
    assert len(team.model.requests) == 1
    assert len(team.messages(talk)) == 1
    assert team.failed_calls() == []


async def test_an_approval_turn_takes_two_posts_and_at_most_three_edits(team: SlackTeam) -> None:
    team.early_seconds, team.pause = 60.0, asyncio.sleep
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="502s"), text="I file it."), say("Filed. " * 50)]
    async with team.working_on("file it") as talk:
        await team.press(team.sam, await team.card(talk), "Approve")
        await team.reads(talk, FINAL)
        await asyncio.sleep(1.5)
    posts, edits = (len(team.slack.calls.of(method)) for method in ("chat.postMessage", "chat.update"))
    assert posts == 2
    assert edits <= 3
    assert "✓ jira.create_issue" in team.visible_text(talk)
    assert team.failed_calls() == []
