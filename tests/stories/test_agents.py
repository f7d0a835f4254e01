"""A person at the terminal asks agents by name, on a screen, in one line and in a pipe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.llm import FakeLanguageModel, Request, Say
from tests.stories.installation import Installation

PERSONA = re.compile(r"You are the agent (\w+)\.")


@pytest.fixture
def model() -> Iterator[FakeLanguageModel]:
    with FakeLanguageModel("openai", rule=answer) as model:
        yield model
    assert model.refusals == []


def answer(request: Request) -> Say:
    """The persona that answers, and the question."""
    persona = PERSONA.search(str(request.messages[0]))
    return Say(f"{persona[1] if persona else 'nobody'}: {request.messages[-1]['content']}")


def with_agents(folder: Path, model: FakeLanguageModel) -> Installation:
    place = Installation(folder, model=model)
    for line in (
        '/profile set support --persona "You are the agent support." --about "Answers questions about orders"',
        '/profile set データ --persona "You are the agent データ."',
        "/profile bind support channel --agent",
        "/profile bind データ workspace --agent",
    ):
        assert place.chat("-m", line).code == 0
    return place


async def test_agents_are_completed_listed_asked_and_kept_until_another_is_named(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    place = with_agents(tmp_path, model)
    async with place.terminal(columns=140, rows=60) as terminal:
        await terminal.asks("/agents")
        await terminal.shows("Agents here · 2", "Answers questions about orders", "データ")
        await terminal.asks("/ask support where is it?")
        await terminal.shows("Agent: support", "support: where is it?")
        await terminal.asks("and the other one?")
        await terminal.shows("support: and the other one?")
        await terminal.asks("データとして、いくつ")
        await terminal.shows("Agent: データ", "データ: いくつ")
        await terminal.asks("as suport where is it?")
        await terminal.shows("There is no agent of that name here.", "Did you mean support?")
        await terminal.asks("as default who are you?")
        await terminal.shows("nobody: who are you?")
        terminal.press("/ask su\t")
        await terminal.shows("/ask support")
        terminal.press("\x15\x04")
        assert await terminal.ended() == 0


def test_a_script_names_an_agent_in_the_line_or_as_an_option(tmp_path: Path, model: FakeLanguageModel) -> None:
    place = with_agents(tmp_path, model)
    outcome = place.chat("-m", "as Support where is it?")
    assert (outcome.code, outcome.out.strip()) == (0, "support: where is it?")
    assert "Agent: support" in outcome.err
    outcome = place.chat("--agent", "データ", "--json", "-m", "いくつ")
    finished = json.loads(outcome.out.splitlines()[-1])
    assert (finished["event"], finished["text"], finished["agent"]) == ("turn_finished", "データ: いくつ", "データ")
    outcome = place.chat("--agent", "データ", typed="one\nas support two\nthree\n")
    assert outcome.out.split("\n\n") == ["データ: one", "support: two", "support: three\n"]
    outcome = place.chat("--agent", "nobody", "-m", "one")
    assert (outcome.code, outcome.out) == (1, "")
    assert "There is no agent of that name here." in outcome.err
    assert "Agents here: support, データ" in outcome.err
