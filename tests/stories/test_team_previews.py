"""A card shows what the call is about, as a tool of the same server that only reads tells it, on every platform."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from bot.domain.flows import Flow, Sends, Words
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import CallReturned, ToolOutcome
from bot.ports.toolbox import CallContext
from tests.fakes.parts import ask_for, call, say, tool
from tests.stories.team import Team
from tests.stories.test_team_self_approval import approve

GET, DELETE = "notes__get", "notes__delete"
BY_ID = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


async def reads_note(asked: ToolCall, _context: CallContext) -> ToolOutcome:
    text = f"*#{asked.arguments['id']}* Buy milk\x1b[2J, token ghp_{'a1B2' * 9}"
    return CallReturned(ToolResult(asked.id, (TextPart(text),)))


async def hangs(_asked: ToolCall, _context: CallContext) -> ToolOutcome:
    await asyncio.Event().wait()
    raise AssertionError


def notes(team: Team, get: Any) -> None:
    """A server of the operator's file, which names the tool for previews."""
    own = Flow(Words.OWN, Sends.CLOSED)
    team.toolbox.add(tool(GET, server_id="file:notes", read_only=True, input_schema=BY_ID, flow=own), get)
    team.toolbox.add(replace(tool(DELETE, server_id="file:notes", destructive=True), preview="get"))
    team.model.script = [ask_for(call(DELETE, id=1, force=True)), say("Gone.")]


async def test_a_card_shows_what_the_call_is_about_and_no_model_reads_it(team: Team) -> None:
    notes(team, reads_note)
    async with team.at_work():
        talk = team.ask("delete note 1")
        card = await team.card(talk)
        shown = " ".join(team.words(card).split())
        assert "Shows now:" in shown
        assert "Buy milk" in shown
        assert "a1B2a1B2" not in shown
        assert "\x1b[2J" not in shown
        assert [(name, arguments) for name, arguments, _context in team.toolbox.calls] == [(GET, {"id": 1})]
        team.toolbox.calls.clear()
        await approve(team, team.sam, card)
        answer = await team.reads(talk, "Gone.")
        assert "notes.get" not in team.words(answer)
        assert team.toolbox.names == [DELETE]
        assert "Buy milk" not in str(team.model.requests)
    assert team.refused() == []


async def test_a_card_comes_without_a_preview_that_takes_too_long(team: Team) -> None:
    notes(team, hangs)
    async with team.at_work():
        card = await team.card(team.ask("delete note 1"))
        assert "Shows now: (timeout)" in " ".join(team.words(card).split())
