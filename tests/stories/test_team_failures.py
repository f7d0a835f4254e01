"""Failures for a team, on Slack and on Discord alike: lost channels, dead processes, duplicate messages."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements
from bot.domain.completions import Completion, ModelRequest
from bot.domain.policies import Rule
from bot.engine.view_delivery import NOT_RUN
from tests.fakes.parts import ask_for, call, say, tool, words
from tests.postgres import Server
from tests.stories.team import Talk, Team

CREATE = "jira__create_issue"
FINAL = "AI answer"
REFUSED = "could not be shown here"
LOSSES: dict[str, Callable[[Team, Talk], None]] = {
    "silenced": lambda team, talk: team.forbid(talk),
    "shut out": lambda team, talk: team.shut_out(talk),
    "closed": lambda team, talk: team.close(talk),
}


async def test_a_call_whose_card_cannot_be_posted_is_denied_and_the_thread_says_so(team: Team) -> None:
    team.toolbox.add(tool(CREATE))
    asked: list[Talk] = []

    async def ask(_request: ModelRequest) -> Completion:
        await team.until(lambda: asked and team.messages(asked[0]))
        team.refuse_next()
        return ask_for(call(CREATE, summary="One"))

    team.early_seconds, team.model.script = 0.1, [ask, say("I could not file it.")]
    async with team.at_work():
        asked.append(talk := team.ask("file it"))
        await team.reads(talk, "I could not file it.")
        await team.reads(talk, REFUSED)
    assert team.toolbox.calls == []
    assert any(REFUSED in text for text in words(team.model.requests[1]))
    assert "Approve" not in str([team.buttons(message) for message in team.messages(talk)])


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
async def test_the_asker_in_a_channel_that_the_bot_has_lost_gets_one_private_notice(
    team: Team, lose: Callable[[Team, Talk], None]
) -> None:
    team.toolbox.add(tool(CREATE))
    asked: list[Talk] = []

    async def losing(_request: ModelRequest) -> Completion:
        await team.until(lambda: asked and team.messages(asked[0]))
        lose(team, asked[0])
        return ask_for(call(CREATE, summary="One"))

    team.early_seconds, team.model.script = 0.1, [losing, say("I could not file it.")]
    async with team.at_work():
        asked.append(team.ask("file it"))
        await team.until(lambda: team.private_replies(team.priya))
    (told,) = team.private_replies(team.priya)
    assert "I could not answer you where you asked “file it”." in told
    assert NOT_RUN in told
    assert team.fetched_addresses() == set()
    assert team.toolbox.calls == []
    assert len(team.model.requests) == 2


async def test_one_process_receives_and_another_with_the_bots_token_alone_answers(team: Team) -> None:
    team.model.script = [say("Late, but here.")]
    async with team.at_work(drawing=False) as front:
        talk = team.ask("why?")
        async with asyncio.timeout(10):
            while not await front.recent_turns(team.conversation(talk), 1):
                await asyncio.sleep(0.02)
    assert team.messages(talk) == []
    async with team.at_work(receiving=False):
        await team.reads(talk, "Late, but here.")
    assert len(team.model.requests) == 1


async def test_a_received_message_is_answered_once_though_the_process_was_killed_right_after(team: Team) -> None:
    async with team.process(HANG="1") as process:
        talk = team.ask("are you there?")
        await team.until(lambda: team.is_taken(talk), 30)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with team.process():
        await team.deliver_again(talk)
        await team.reads(talk, "You said: are you there?", 30)
        await team.reads(talk, FINAL)
    assert team.visible_text(talk).count("You said") == 1


async def test_one_message_that_comes_again_and_again_to_two_processes_is_answered_once(
    team: Team, postgres: Server
) -> None:
    team.server = await asyncio.to_thread(postgres.fresh)
    team.model.script = [say("Once."), say("And then.")]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(team.at_work())
        talk = team.ask("why?")
        await team.reads(talk, FINAL)
        await team.deliver_again(talk)
        team.go_on(talk, "and then?")  # it comes after what came again
        await team.reads(talk, "And then.")
    assert len(team.model.requests) == 2
    assert len(team.messages(talk)) == 2
    assert team.failed_calls() == []


async def test_a_click_works_on_any_process(team: Team, postgres: Server) -> None:
    team.server = await asyncio.to_thread(postgres.fresh)
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("Filed.")]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(team.at_work())
        talk = team.ask("file it")
        card = await team.card(talk)
        before = team.screen(card)
        await asyncio.gather(*(team.press(team.sam, card, "Approve", old=before) for _ in range(2)))
        await team.reads(talk, "Filed.")
    assert team.toolbox.names == [CREATE]


async def test_the_asker_and_the_approver_of_a_call_that_ran_unseen_are_told_in_private(team: Team) -> None:
    ada = team.person("Ada")
    terms = ApprovalRequirements((frozenset({team.principal(ada)}),))
    team.rules = (Rule(ApprovalPolicy.ASK_USER, server="jira", requirements=terms, id="policy.toml:1"),)
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="One")), say("It is filed.")]
    async with team.working_on("file it") as talk:
        await team.card(talk)
        await team.open_list(ada)
        await team.until(lambda: "Waiting for you (1)" in " ".join(map(team.words, team.alone(ada))))
        listed = team.alone(ada)[-1]
        team.shut_out(talk)
        await team.press(ada, listed, "Approve")
        await team.until(lambda: any("jira.create_issue (done)" in text for text in team.private_replies(team.priya)))
        await team.until(lambda: any("You approved this" in text for text in team.private_replies(ada)))
    assert team.toolbox.names == [CREATE]
    assert "jira.create_issue (done)" in next(text for text in team.private_replies(ada) if "You approved this" in text)
