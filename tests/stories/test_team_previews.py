"""A card shows what the call is about, as a tool of the same server that only reads tells it, on every platform."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.conversations import InboundMessage
from bot.domain.flows import Flow, Sends, Words
from bot.domain.messages import TextPart, ToolCall, ToolResult
from bot.domain.tools import CallReturned, ToolOutcome
from bot.domain.turns import CallOrigin, ToolStep
from bot.platforms.console.turn_tracker import exit_code
from bot.ports.toolbox import CallContext
from bot.rendering.timeline import answer
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
    async with team.waiting_on("delete note 1") as (talk, card):
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
    assert team.failed_calls() == []


@pytest.mark.parametrize("attached", [False, True])
async def test_the_card_of_a_call_by_hand_or_of_an_attached_one_shows_what_the_call_is_about(
    team: Team, attached: bool
) -> None:
    notes(team, reads_note)
    asked = ToolCall("run-1", DELETE, {"id": 7})
    team.model.script = [say("Gone."), *([say("Deleted.")] if attached else []), say("Seen.")]
    async with team.at_work() as engine:
        talk = team.ask("hello")
        await team.reads(talk, "Gone.")
        first = await team.turn(engine, talk)
        by_hand = InboundMessage(("run-1",), first.turn.conversation, first.turn.author, "Run notes.delete", call=asked)
        attaching = replace(by_hand, call=None, attached=(asked,))
        await engine.receive(attaching if attached else by_hand)
        card = await team.card(talk)
        assert "Buy milk" in team.words(card)
        team.toolbox.calls.clear()
        await approve(team, team.sam, card)
        await team.until(lambda: DELETE in team.toolbox.names)
        await engine.receive(replace(by_hand, keys=("next",), call=None, text="what did it say?"))
        await team.reads(talk, "Seen.")
        done = (await engine.recent_turns(first.turn.conversation, 2))[0]
        assert "Buy milk" not in str(team.model.requests)
    if not attached:
        assert answer(done) == "ok"
        assert exit_code(done) == 0
    assert [step.origin is CallOrigin.PREVIEW for step in done.steps if isinstance(step, ToolStep)] == [False, True]
    assert team.failed_calls() == []


async def test_a_card_comes_without_a_preview_that_takes_too_long(team: Team) -> None:
    notes(team, hangs)
    async with team.at_work():
        card = await team.card(team.ask("delete note 1"))
        assert "Shows now: (timeout)" in " ".join(team.words(card).split())
