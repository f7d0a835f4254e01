"""Editing a call's arguments before its approval, at a terminal."""

from __future__ import annotations

import dataclasses

from bot.chat.forms import DONE
from bot.domain.approvals import AlreadyDecided
from bot.domain.messages import ToolCall
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus, ToolRef
from bot.ports.platform import InvalidValues
from tests.platforms.console.chat import Chat, chatting
from tests.platforms.console.scripted_engine import ScriptedTurn, an_approval, asking

KNOWN = ToolRef("notes", "add_note", read_only=False, destructive=False, server_id="s-1")
SCHEMA = {
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "pinned": {"type": "boolean"}},
    "required": ["text"],
}
KEYS = "[e] edit"
ERASE = "\x15"
"""Ctrl-U deletes the line."""


asks = asking("Done with it.", tool=KNOWN)


async def show_card(chat: Chat) -> None:
    chat.engine.schema = SCHEMA
    await chat.type("go", KEYS)


async def test_e_asks_for_each_argument_with_its_value() -> None:
    async with chatting({"go": asks}) as chat:
        await show_card(chat)
        await chat.press("e", "Edit: Add note", "text: Buy milk")
        await chat.press(" and bread\r", "  a whole number", "count:")
        await chat.press("3\r", "yes | no | leave out", "pinned:")
        await chat.press("y\r", DONE)
        ((approval_id, revision, arguments, member),) = chat.engine.revisions
        assert (approval_id, revision) == ("apr-12345678", 1)
        assert arguments == {"text": "Buy milk and bread", "count": 3, "pinned": True}
        assert member.author.principal == "console:ana"
        assert chat.engine.decisions == []


async def test_an_invalid_value_is_asked_for_again() -> None:
    async with chatting({"go": asks}) as chat:
        chat.engine.editings = [InvalidValues((ArgumentError("count", "count: 99 is greater than the maximum of 9"),))]
        await show_card(chat)
        await chat.press("e", "text: Buy milk")
        await chat.press("\r", "  a whole number", "count:")
        await chat.press("many\r", "yes | no | leave out", "pinned:")
        await chat.press("\r", "count: A whole number, such as 3.", "count: many")
        await chat.press(f"{ERASE}99\r", "greater than the maximum of 9", "count: 99")
        await chat.press(f"{ERASE}9\r", DONE)
        assert [arguments for _, _, arguments, _ in chat.engine.revisions] == [
            {"text": "Buy milk", "count": 99},
            {"text": "Buy milk", "count": 9},
        ]


async def test_escape_leaves_the_call_as_it_is_and_the_keys_come_back() -> None:
    async with chatting({"go": asks}) as chat:
        await show_card(chat)
        await chat.press("e", "text: Buy milk")
        await chat.press("\x03", "Nothing was changed.", KEYS)
        assert chat.engine.revisions == []
        await chat.press("y", "▌ Approved.")


async def test_a_user_who_may_not_edit_reads_why() -> None:
    async with chatting({"go": asks}) as chat:
        chat.engine.not_now = AlreadyDecided("That is decided already and cannot be edited.")
        await show_card(chat)
        await chat.press("e", "That is decided already", KEYS)
        assert chat.engine.revisions == []


async def test_the_card_comes_again_with_the_changes() -> None:
    async def script(turn: ScriptedTurn) -> None:
        approval = an_approval()
        n = await turn.call(StepStatus.AWAITING, approval=approval, tool=KNOWN)
        changed = dataclasses.replace(approval, revision=2, proposed={"text": "Buy milk"}, revised_by="ben")
        await turn.update(n, approval=changed, call=ToolCall(f"call-{n}", "notes__add_note", {"text": "Buy bread"}))
        await turn.apply(n, changed)
        await turn.end("Done.")

    async with chatting({"go": script}) as chat:
        await chat.type("go")
        await chat.terminal.shows(
            "Changed by ben since the model asked for it.", 'text: "Buy milk" → "Buy bread"', KEYS
        )
        await chat.press("y", "▌ Approved.", "Done.")
        assert [decision.revision for decision in chat.engine.decisions] == [2]
