"""Elicitations at a terminal."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.chat.forms import FINISHED, REFUSED, SENT
from bot.domain.approvals import AlreadyDecided, NotAllowed
from bot.domain.elicitations import DECLINED, Elicitation, ElicitationAction, ElicitationResult
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus, ToolStep
from bot.ports.platform import ElicitationAnswered, InvalidValues, OpenElicitation
from tests.platforms.console.chat import Chat, chatting
from tests.platforms.console.scripted_engine import ScriptedTurn, an_approval
from tests.rendering.turns import a_form, a_link

KEYS = "[a] answer…  [d] decline"
ERASE = "\x15"


def asks(elicitation: Elicitation, **changes: Any) -> Any:
    """Return the script of a turn with this elicitation, which continues after the answer."""

    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.ASKING, elicitations=(elicitation,), **changes)
        step = turn.steps[n]
        assert isinstance(step, ToolStep)
        turn.engine.inquiries.setdefault(elicitation.id, OpenElicitation(turn.turn, step, elicitation))
        reply = await turn.engine.answered.get()
        settled = dataclasses.replace(elicitation, reply=reply, answered_by="ana")
        await turn.update(n, status=StepStatus.DONE, result="ok", elicitations=(settled,))
        await turn.end("Done with it.")

    return script


async def show_card(chat: Chat, *texts: str) -> None:
    await chat.type("go", *texts)


async def test_a_form_is_filled_in_and_sent() -> None:
    properties = {"title": {"type": "string", "title": "Title"}, "copies": {"type": "integer", "default": 2}}
    async with chatting({"go": asks(a_form(properties=properties))}) as chat:
        await show_card(chat, "▌ notes asks for an answer", "▌ > What is it called?", "It asks for Title, copies", KEYS)
        await chat.press("a", "Answer notes", "are sent to this server only", "Title:")
        await chat.press("Milk\r", "copies: 2")
        await chat.press("\r", f"▌ {SENT}", "Done with it.")
        ((elicitation_id, reply, member),) = chat.engine.replied
        assert (elicitation_id, member.author.principal) == ("eli-12345678", "console:ana")
        assert reply == ElicitationResult(ElicitationAction.ACCEPT, {"title": "Milk", "copies": 2})


async def test_d_declines() -> None:
    async with chatting({"go": asks(a_form())}) as chat:
        await show_card(chat, KEYS)
        await chat.press("d", f"▌ {REFUSED}", "Done with it.")
        assert [reply for _, reply, _ in chat.engine.replied] == [DECLINED]


async def test_escape_leaves_the_form_and_the_keys_come_back() -> None:
    async with chatting({"go": asks(a_form())}) as chat:
        await show_card(chat, KEYS)
        await chat.press("a", "Title:")
        await chat.press("\x03", "Nothing was changed.", KEYS)
        assert chat.engine.replied == []
        await chat.press("d", REFUSED)


async def test_an_invalid_value_is_asked_for_again() -> None:
    async with chatting({"go": asks(a_form())}) as chat:
        chat.engine.answerings = [InvalidValues((ArgumentError("title", "it is too short"),))]
        await show_card(chat, KEYS)
        await chat.press("a", "Title:")
        await chat.press("M\r", "it is too short", "Title: M")
        await chat.press("ilk\r", SENT)
        assert chat.engine.replied[-1][1].content == {"title": "Milk"}


async def test_a_link_is_shown_whole_and_finished_with_a_key() -> None:
    url = "https://jira.example.com/consent?ticket=" + "7" * 80
    async with chatting({"go": asks(a_link(url=url))}) as chat:
        await show_card(chat, "▌ The page is on jira.example.com", "[s] show the link  [d] decline")
        assert "ticket" not in chat.terminal.text
        await chat.press("s", "You leave this chat", "[f] I have finished  [d] decline")
        assert url in chat.terminal.text.replace("\n", "")
        assert chat.engine.replied == []
        await chat.press("f", f"▌ {FINISHED}", "Done with it.")
        assert chat.engine.replied[0][1] == ElicitationResult(ElicitationAction.ACCEPT)


async def test_a_form_without_fields_is_answered_with_a_yes() -> None:
    async with chatting({"go": asks(a_form(properties={}, message="Delete all of it?"))}) as chat:
        await show_card(chat, "Delete all of it?", KEYS)
        await chat.press("a", "[y] yes, go on  [d] decline")
        await chat.press("y", SENT)
        assert chat.engine.replied[0][1] == ElicitationResult(ElicitationAction.ACCEPT, {})


async def test_another_key_says_which_there_are() -> None:
    async with chatting({"go": asks(a_form())}) as chat:
        await show_card(chat, KEYS)
        await chat.press("y", "One key: a, d.")
        assert chat.engine.replied == []


@pytest.mark.parametrize("refusal", [NotAllowed("Only Priya can answer this."), AlreadyDecided("Ana was faster.")])
async def test_a_user_who_cannot_answer_reads_why_and_is_asked_no_more(refusal: Any) -> None:
    async with chatting({"go": asks(a_form())}) as chat:
        chat.engine.inquiries["eli-12345678"] = refusal
        await show_card(chat, KEYS)
        await chat.press("d", "Only Priya can answer this." if isinstance(refusal, NotAllowed) else "Ana was")
        assert chat.engine.replied == []
        chat.engine.answered.put_nowait(DECLINED)
        await chat.terminal.shows("Done with it.")


async def test_a_question_answered_elsewhere_says_how_and_takes_no_key() -> None:
    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.ASKING, elicitations=(a_form(),))
        await turn.engine.answered.get()
        late = a_form(
            reply=ElicitationResult(ElicitationAction.CANCEL), reason="The question expired without an answer."
        )
        await turn.update(n, status=StepStatus.FAILED, result="no", elicitations=(late,))
        await turn.end("Done with it.")

    async with chatting({"go": script}) as chat:
        await show_card(chat, KEYS)
        chat.engine.answered.put_nowait(DECLINED)
        await chat.terminal.shows("▌ The question expired without an answer", "Done with it.")
        assert chat.engine.replied == []


async def test_a_forbidden_question_is_reported_with_its_reason() -> None:
    async def script(turn: ScriptedTurn) -> None:
        refused = a_form(reply=DECLINED, reason="It asks for a secret (pin).")
        await turn.call(StepStatus.DONE, "no", elicitations=(refused,))
        await turn.end("Done with it.")

    async with chatting({"go": script}) as chat:
        await show_card(chat, "▌ notes asks for an answer. Declined. It asks for a secret (pin)", "Done with it.")


async def test_an_approval_and_a_question_are_asked_for_one_after_the_other() -> None:
    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.ASKING, elicitations=(a_form(),))
        step = turn.steps[n]
        assert isinstance(step, ToolStep)
        turn.engine.inquiries["eli-12345678"] = OpenElicitation(turn.turn, step, a_form())
        asked = await turn.call(StepStatus.AWAITING, approval=an_approval())
        await turn.engine.answered.get()
        await turn.update(n, status=StepStatus.DONE, result="ok", elicitations=(a_form(reply=DECLINED),))
        await turn.apply(asked, an_approval())
        await turn.end("Done with it.")

    async with chatting({"go": script}) as chat:
        await show_card(chat, KEYS)
        assert "[y] once" not in chat.terminal.text
        await chat.press("d", REFUSED, "[y] once")
        await chat.press("y", "▌ Approved.", "Done with it.")


async def test_ctrl_c_stops_a_turn_that_waits_for_an_answer() -> None:
    async with chatting({"go": asks(a_form())}) as chat:
        await show_card(chat, KEYS)
        await chat.press("\x03", "Stopped.")
        assert chat.engine.stops == ["t1"]
        assert chat.engine.replied == []


async def test_two_questions_are_asked_one_after_the_other() -> None:
    first, second = a_form("e1", message="First?"), a_form("e2", message="Second?")

    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.ASKING, elicitations=(first, second))
        step = turn.steps[n]
        assert isinstance(step, ToolStep)
        for each in (first, second):
            turn.engine.inquiries[each.id] = OpenElicitation(turn.turn, step, each)
        for _ in range(2):
            await turn.engine.answered.get()
        await turn.update(n, status=StepStatus.DONE, result="ok")
        await turn.end("Done with it.")

    async with chatting({"go": script}) as chat:
        chat.engine.answerings = [
            ElicitationAnswered(ElicitationAction.DECLINE),
            ElicitationAnswered(ElicitationAction.DECLINE),
        ]
        await show_card(chat, "First?", KEYS)
        assert "Second?" not in chat.terminal.text
        await chat.press("d", "Second?", KEYS)
        await chat.press("d", "Done with it.")
        assert [elicitation_id for elicitation_id, _, _ in chat.engine.replied] == ["e1", "e2"]
