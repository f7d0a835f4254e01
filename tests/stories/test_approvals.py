"""Something is to be written, and a person signs for it with a key, or does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.chat.approval_inbox import NOTHING_WAITS
from tests.fakes.llm import Api, Call, FakeLanguageModel, Say
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import Installation

KEYS = "[Enter] no"
"""The last keys of every card. The keys before them depend on the call."""


async def card(terminal: ProgramOnTerminal, *texts: str) -> str:
    """Wait for a card that asks for a key, with these texts on it, and return the screen."""
    await terminal.until(lambda: KEYS in "\n".join(terminal.lines), "a card that asks for a key")
    screen = "\n".join(terminal.lines)
    for text in texts:
        assert text in screen
    return screen


async def test_a_note_is_saved_once_after_y_and_not_before(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    async with place.terminal() as terminal:
        await terminal.asks("add a note: buy milk")
        screen = await card(
            terminal,
            "▌ Add a note “buy milk” (notes)?",
            "▌ Server notes   Tool add   Risk ● Writes data",
            "▌ Asked by owner",
        )
        assert [line for line in screen.split("\n") if "▌ text" in line] == ["  ▌ text  buy milk"]
        assert place.notes == []
        await terminal.presses("y", "▌ Approved.", "✓ notes.add", "Saved as note #1: buy milk")
        assert place.notes == ["buy milk"]

        await terminal.asks("list my notes", "✓ notes.list")
        await terminal.prompts()
        assert terminal.text.count("Add a note “buy milk” (notes)?") == 1
        terminal.type("/quit")
        assert await terminal.wait_for_exit() == 0
    assert place.notes == ["buy milk"]


async def test_a_card_of_delete_note_1_shows_that_note(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    async with place.terminal() as terminal:
        await terminal.asks("add a note: buy milk")
        await card(terminal, "buy milk")
        await terminal.presses("y", "Saved as note #1: buy milk")
        await terminal.asks("Delete note 1")
        await card(terminal, "Delete a note", "Shows now: #1 buy milk")
        await terminal.presses("y", "Deleted note #1: buy milk")
    assert place.notes == []


async def test_a_long_note_is_read_in_full_and_turned_down_with_enter_and_another_one_with_a_reason(
    tmp_path: Path,
) -> None:
    long = " ".join(f"word{n}" for n in range(60))
    with FakeLanguageModel(
        "openai",
        Say(calls=(Call("notes__add", {"text": long}),)),
        Say("I did not save the long one."),
        Say(calls=(Call("notes__add", {"text": "short"}), Call("notes__delete", {"id": 7}))),
        Say("I saved and deleted nothing."),
    ) as model:
        place = Installation(tmp_path, model=model)
        async with place.terminal() as terminal:
            await terminal.asks("save the long one")
            screen = await card(terminal, "Add a note “word0 word1", "v to view all")
            assert "word59" not in screen
            await terminal.presses("v", f"text · {len(long)} characters", "word59")
            await card(terminal)
            await terminal.presses("\r", "▌ Not run.", "⊘ notes.add  denied  by owner", "I did not save the long one.")
            (told,) = model.requests[-1].results
            assert told == "Error: owner turned this call down. It was not run."

            await terminal.asks("save a short one and delete another")
            await card(terminal, "short", "(1 of 2)")
            await terminal.presses("n", "reason (optional):")
            terminal.type("wrong notebook")
            await terminal.shows("▌ Not run. Told the agent: wrong notebook")
            await card(terminal, "Delete a note", "Tool delete   Risk ● May destroy data", "(2 of 2)")
            terminal.press("n")
            await terminal.until(lambda: "reason (optional):" in terminal.lines[-1], "the second reason")
            terminal.type("keep it")
            await terminal.shows("denied  by owner: wrong notebook", "denied  by owner: keep it")
            await terminal.shows("I saved and deleted nothing.")
            first, second = model.requests[-1].results
            assert "wrong notebook" in first
            assert "keep it" in second
    assert model.refusals == []
    assert place.notes == []


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic"])
async def test_a_call_that_came_as_text_is_approved_and_runs_like_any_other(tmp_path: Path, api: Api) -> None:
    written = '<tool_call>{"name": "notes__add", "arguments": {"text": "buy milk"}}</tool_call>'
    with FakeLanguageModel(api, Say(written), Say("It is saved.")) as model:
        place = Installation(tmp_path, model=model)
        async with place.terminal() as terminal:
            await terminal.asks("save it")
            screen = await card(terminal, "▌ Add a note “buy milk” (notes)?")
            assert "tool_call" not in screen
            assert place.notes == []
            await terminal.presses("y", "▌ Approved.", "✓ notes.add", "It is saved.")
    assert place.notes == ["buy milk"]
    assert model.requests[-1].results != ()


TWO_SIGN = """
[[rules]]
policy = "ASK_USER"
server = "notes"
tool = "add"
approvers = ["console:owner", "console:lee", "console:ada"]
quorum = 2
"""


async def test_a_call_that_waits_in_another_conversation_is_listed_and_denied_by_its_id(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    place.rule(TWO_SIGN)
    async with place.terminal("--new", "--conversation", "shared", columns=160) as terminal:
        await terminal.asks("add a note: buy milk")
        await card(terminal, "needs 2 of ada or lee or owner")
        await terminal.presses("y", "▌ Approved. 1 more approval is needed.", "Waiting for an approval…")
    listed = await asyncio.to_thread(place.chat, "-m", "/approvals")
    assert "1 call waits for you, oldest first." in listed.out
    assert "Add a note" in listed.out
    approval_id = next(line.split()[0] for line in listed.out.splitlines() if "Add a note" in line)
    denied = await asyncio.to_thread(place.chat, "-m", f"/approvals deny {approval_id} not today")
    assert "Denied." in denied.out
    assert NOTHING_WAITS in (await asyncio.to_thread(place.chat, "-m", "/approvals")).out
    assert place.notes == []


async def test_a_call_for_two_approvers_does_not_run_when_one_approves_twice_with_a_restart_between(
    tmp_path: Path,
) -> None:
    place = Installation(tmp_path)
    place.rule(TWO_SIGN)
    async with place.terminal("--new", "--conversation", "shared", columns=160) as terminal:
        await terminal.asks("add a note: buy milk")
        await card(terminal, "needs 2 of ada or lee or owner")
        await terminal.presses("y", "▌ Approved. 1 more approval is needed.", "Waiting for an approval…")
        assert place.notes == []

    async with place.terminal("--conversation", "shared", columns=160) as terminal:
        await card(terminal, "buy milk", "1 of 2 approved by owner")
        await terminal.presses("y", "You have already approved it. It needs 1 more approval.")
        assert place.notes == []
