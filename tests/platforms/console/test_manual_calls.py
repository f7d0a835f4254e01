"""Turns of a manual call: the tool's result is the answer, because no model summarizes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

from bot.domain.messages import ToolCall
from bot.domain.turns import StepStatus, Turn, TurnInput, TurnStatus, TurnView
from bot.platforms.console.transcript import RETURNED_LINES
from bot.platforms.console.turn_tracker import StartState
from bot.rendering.timeline import SECOND_TRY
from tests.platforms.console.chat import chatting, now
from tests.platforms.console.scripted_engine import ScriptedTurn, a_call, a_turn, an_approval
from tests.platforms.console.terminal import prompt_line
from tests.platforms.console.test_headless import process

LISTED = "#1 buy *milk*\n#2 call **Bo**"


def by_hand(turn: Turn, *, again: bool = False, may_have_run: bool = False) -> Turn:
    call = ToolCall("call-0", "notes__add_note", {"text": "Buy milk"})
    return dataclasses.replace(
        turn, question=TurnInput(turn.question.text, call=call, again=again, may_have_run=may_have_run)
    )


def ran(status: StepStatus, result: str | None, text: str = "Run add_note again", *, again: bool = False) -> TurnView:
    turn = by_hand(a_turn("t0", text, status=TurnStatus.DONE), again=again)
    return TurnView(turn, (a_call(0, status, result),), 1)


def returns(result: str, status: StepStatus = StepStatus.DONE) -> Callable[[ScriptedTurn], Awaitable[None]]:
    async def script(turn: ScriptedTurn) -> None:
        turn.turn = by_hand(turn.turn)
        n = await turn.call(StepStatus.STARTED)
        await turn.update(n, status=status, result=result)
        await turn.end()

    return script


async def test_the_call_and_all_that_it_returned_are_shown_as_they_stand() -> None:
    async with chatting({"go": returns(LISTED)}) as chat:
        await chat.type("go", "#2 call **Bo**")
        await chat.terminal.prompts()
        assert chat.terminal.lines[2:] == [
            prompt_line("go"),
            "",
            "  ✓ notes.add_note",
            "",
            "#1 buy *milk*",
            "#2 call **Bo**",
            "",
            prompt_line(),
        ]


async def test_a_result_fakes_no_card_and_is_cut_before_it_floods_the_screen() -> None:
    flood = "\n".join(f"▌ [y] once\x1b[2J {n}" for n in range(RETURNED_LINES + 5))
    async with chatting({"go": returns(flood)}) as chat:
        await chat.type("go", f"| [y] once {RETURNED_LINES - 1}", "… 5 more lines")
        assert "▌" not in chat.terminal.text
        assert b"\x1b[2J" not in chat.terminal.raw


async def test_without_a_screen_the_result_is_the_answer() -> None:
    async with process("go", {"go": returns(LISTED)}) as running:
        assert await running.code() == 0
        assert running.out == f"{LISTED}\n"
        assert running.err.splitlines()[-1].endswith("notes.add_note")
    async with process("go", {"go": returns(LISTED)}, json=True) as running:
        assert await running.code() == 0
        assert running.events[-1]["data"]["text"] == LISTED


async def test_a_call_that_failed_is_told_in_full_and_is_exit_code_1() -> None:
    async with process("go", {"go": returns("No room.\nFree some.", StepStatus.FAILED)}) as running:
        assert await running.code() == 1
        assert running.out == ""
        assert running.err.endswith("notes.add_note  failed\nNo room.\nFree some.\n")
    async with chatting({"go": returns("No room.\nFree some.", StepStatus.FAILED)}) as chat:
        await chat.type("go", "✗ notes.add_note  failed", "No room.", "Free some.")


async def test_the_card_of_a_second_try_says_that_it_is_one() -> None:
    async def asks(turn: ScriptedTurn) -> None:
        turn.turn = by_hand(turn.turn, again=True, may_have_run=True)
        await turn.ask(an_approval())
        await turn.end()

    async with chatting({"go": asks}) as chat:
        await chat.type("go", "▌ Add note “Buy milk” (notes)?")
        before, _, _ = chat.terminal.text.partition("▌")
        assert SECOND_TRY in before
        await chat.terminal.shows("[y] once")
        await chat.press("y", "✓ notes.add_note", "Added note 3")
        await chat.terminal.prompts()
        assert chat.terminal.text.count(SECOND_TRY) == 1


async def test_after_a_restart_it_is_remembered_with_its_result() -> None:
    earlier = (ran(StepStatus.DONE, LISTED), ran(StepStatus.DENIED, None, "Run it", again=True))
    async with chatting(opening=now(StartState("c1", earlier))) as chat:
        await chat.terminal.shows(
            prompt_line("Run add_note again"), "#1 buy *milk* #2 call **Bo**", prompt_line("Run it")
        )


async def test_one_that_an_earlier_process_left_running_is_followed_to_its_end() -> None:
    done = ran(StepStatus.DONE, LISTED)
    left = dataclasses.replace(
        done,
        turn=dataclasses.replace(done.turn, status=TurnStatus.RUNNING),
        steps=(a_call(0, StepStatus.STARTED),),
        revision=0,
    )
    async with chatting(opening=now(StartState("c1", (left,)))) as chat:
        await chat.terminal.shows(prompt_line("Run add_note again"), "◌ notes.add_note")
        async for _drawn in chat.engine.surface.deliver(done, {}):
            pass
        await chat.terminal.shows("✓ notes.add_note", "#2 call **Bo**")
        await chat.terminal.prompts()
        assert chat.terminal.text.count("✓ notes.add_note") == 1


async def test_told_beside_another_answer_it_is_whole() -> None:
    async with process("hello") as running:
        assert await running.code() == 0
        async for _drawn in running.chat.surface.deliver(ran(StepStatus.DONE, LISTED), {}):
            pass
        assert running.err.startswith("From another window: Run add_note again\n")
        assert running.err.endswith(f"notes.add_note\n{LISTED}\n")
