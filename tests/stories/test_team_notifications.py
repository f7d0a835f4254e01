"""When a platform notifies people of an answer: at a post, with its first words, and never at an edit."""

from __future__ import annotations

import signal

from tests.fakes.parts import say
from tests.stories.team import Team, think

FINAL = "AI answer"


async def test_a_slow_answer_of_another_process_is_a_new_message_and_nothing_is_there_twice(team: Team) -> None:
    team.early_seconds, team.model.script = 0.1, [think, say("The payments pool is too small.")]
    async with team.working_on("why 502?") as talk:
        working = await team.offers(talk, "Stop")
    async with team.at_work():
        answer = await team.reads(talk, FINAL)
        await team.until(lambda: len(team.messages(talk)) == 1)
    assert answer is not working
    assert team.visible_text(talk).count("The payments pool is too small.") == 1
    assert team.failed_calls() == []


async def test_a_process_that_is_killed_after_its_working_message_leaves_one_answer_and_nothing_else(
    team: Team,
) -> None:
    async with team.process(HANG="1", EARLY_SECONDS="0.1") as process:
        talk = team.ask("are you there?")
        await team.offers(talk, "Stop")
        process.send_signal(signal.SIGKILL)
        await process.wait()
    async with team.process():
        await team.reads(talk, "You said: are you there?")
        await team.until(lambda: len(team.messages(talk)) == 1)
        await team.reads(talk, FINAL)
    assert "Stop" not in str([team.buttons(message) for message in team.messages(talk)])
    assert team.visible_text(talk).count("You said") == 1
