"""A turn that ends by a limit says so, and goes on with *Continue*, on every chat platform."""

from __future__ import annotations

from bot.domain.completions import Completion, StopReason
from bot.domain.messages import ToolCall, assistant
from bot.domain.profiles import Binding, Profile
from bot.domain.tools import ToolOutcome
from bot.errors import ModelRejected
from bot.ports import CallContext
from tests.fakes.parts import Unfinished, ask_for, call, say, text_outcome, tool, words
from tests.stories.team import Team

ROUNDS = 2


async def chapter(asked: ToolCall, _context: CallContext) -> ToolOutcome:
    return text_outcome(asked, f"chapter {asked.arguments['n']} names the culprit")


async def test_a_turn_that_ended_by_a_limit_goes_on_with_what_it_has(team: Team) -> None:
    team.toolbox.add(tool("book__read", read_only=True), chapter)
    team.allowed = {"book__read"}
    team.profiles = (Profile("p1", "research", max_tool_rounds=ROUNDS),)
    team.bindings = (Binding(team.place(team.channel), "p1"),)  # type: ignore[attr-defined]
    team.model.script = [
        *(ask_for(call("book__read", f"c{n}", n=n)) for n in range(ROUNDS)),
        say("I have read two chapters."),
        Completion(assistant("It was the"), StopReason.LENGTH),
        ask_for(call("book__read", "c2", n=2)),
        Unfinished("butler, said", ModelRejected("The model was switched off.")),
        say("chapter two."),
    ]
    async with team.working_on("who was it?") as talk:
        limited = await team.offers(talk, "Continue")
        assert f"Stopped using tools after {ROUNDS} rounds." in team.words(limited)
        await team.press(team.priya, limited, "Continue")
        await team.reads(talk, "It was the")
        cut = await team.offers(talk, "Continue")
        assert "The answer was cut off at the model's length limit." in team.words(cut)
        await team.press(team.priya, cut, "Continue")
        await team.reads(talk, "butler, said")
        failed = await team.offers(talk, "Continue")
        assert "The model was switched off." in team.words(failed)
        await team.press(team.priya, failed, "Continue")
        await team.reads(talk, "chapter two.")
    assert [arguments["n"] for _name, arguments, _context in team.toolbox.calls] == [0, 1, 2]
    gone_on, last = words(team.model.requests[ROUNDS + 1]), words(team.model.requests[-1])
    assert all(any(f"chapter {n} names the culprit" in text for text in gone_on) for n in range(ROUNDS))
    assert any("butler, said\n(I failed here.)" in text for text in last)
    assert team.failed_calls() == []
