"""A person leaves and comes back, or comes twice at the same time."""

from __future__ import annotations

import re
from pathlib import Path

from bot.platforms.console.lines import PROMPT
from tests.fakes.llm import FakeLanguageModel, Request, Say
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import Installation


def counting(request: Request) -> Say:
    """Answer with the number of questions in the conversation."""
    return Say(f"That was question {sum(message['role'] == 'user' for message in request.messages)}.")


def heard(model: FakeLanguageModel, question: str) -> list[str]:
    """The conversation in the request with this question. A turn whose end was not stored before its user left is asked
    again later.
    """
    request = next(each for each in reversed(model.requests) if each.messages[-1]["content"] == question)
    return [str(message["content"]) for message in request.messages if message["role"] != "system"]


async def leave(terminal: ProgramOnTerminal) -> None:
    await terminal.prompts()
    assert await terminal.leaves() == 0


async def test_a_conversation_goes_on_after_a_restart_and_others_can_be_begun_and_found_again(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=counting) as model:
        place = Installation(tmp_path, {}, model=model)
        async with place.terminal() as terminal:
            await terminal.asks("my bicycle is green", "That was question 1.")
            await leave(terminal)

        async with place.terminal() as terminal:
            await terminal.shows("1 earlier turn", "/new starts a fresh one", f"{PROMPT} my bicycle is green")
            match = re.search(r"Continuing (\S+) ", terminal.text)
            assert match is not None
            first = match[1]
            await terminal.asks("which colour is it?", "That was question 2.")
            said = ["my bicycle is green", "That was question 1.", "which colour is it?"]
            assert heard(model, "which colour is it?") == said
            await leave(terminal)

        async with place.terminal("--new") as terminal:
            await terminal.asks("something else", "That was question 1.")
            assert heard(model, "something else") == ["something else"]
            assert "Continuing" not in terminal.text
            await leave(terminal)

        again = place.chat("--conversation", first, "-m", "and now?")
        assert (again.code, again.out) == (0, "That was question 3.\n")
        assert heard(model, "and now?")[0] == "my bicycle is green"
