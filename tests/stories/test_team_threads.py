"""A long thread is read as a whole, on every chat platform."""

from __future__ import annotations

import re

from bot.domain.completions import Completion, ModelRequest
from bot.engine.prompt.messages import LEFT_OUT, READ_THREAD, UNREAD
from tests.fakes.parts import ask_for, call, say, words
from tests.stories.team import Team

REPLIES = 400


async def test_the_whole_of_a_long_thread_is_summed_up_in_parts_and_the_person_is_told_how_much_was_read(
    team: Team,
) -> None:
    summed_up: list[str] = []

    async def reads_all(request: ModelRequest) -> Completion:
        context = "\n".join(words(request))
        assert LEFT_OUT in context or UNREAD in context
        assert READ_THREAD in {tool.name for tool in request.tools}
        team.limit_next_reads()
        return ask_for(call(READ_THREAD))

    async def goes_on(request: ModelRequest) -> Completion:
        if "Sum up the conversation" in request.messages[0].text:
            summed_up.append(words(request)[-1])
            return say(f"Summary {len(summed_up)}.")
        if "word for word" not in str(words(request)):
            return ask_for(call(READ_THREAD, "c2", first=REPLIES - 9), text="Now word for word.")
        return say("They say that it hangs.")

    team.model.script = [say("The pool."), reads_all, *[goes_on] * 30]
    async with team.working_on("why 502?") as talk:
        await team.reads(talk, "The pool.")
    for n in range(REPLIES):
        team.go_on(talk, f"I saw it hang, too: case <{n}> of the checkout, with the usual symptoms", by=team.sam)
    async with team.at_work() as engine:
        team.go_on(talk, f"{team.mention} summarize this thread")
        await team.reads(talk, "They say that it hangs.")
        answer = await team.reads(talk, "messages of this conversation were read")
        view = await team.turn(engine, talk)
    assert len(summed_up) > 1
    assert "Summary 1." in summed_up[1], "each part continues the summary of those before it"
    read = {int(n) for text in summed_up for n in re.findall(r"case <(\d+)>", text)}
    assert read == set(range(REPLIES))
    (count,) = re.findall(r"(\d+) messages of this conversation were read", team.words(answer))
    assert REPLIES <= int(count) <= REPLIES + 3
    whole, page = (step.result.text for step in view.steps if hasattr(step, "result") and step.result is not None)
    assert whole.endswith(f"Summary {len(summed_up)}.")
    assert f"case <{REPLIES - 5}>" in page
    assert f"case <{REPLIES - 20}>" not in page
