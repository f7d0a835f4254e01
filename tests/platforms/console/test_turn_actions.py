"""Actions on a turn at the terminal: `/check`, `/again`, `/stop`."""

from __future__ import annotations

import asyncio

from bot.domain.turns import BlockingTurn, StepStatus, TurnStatus
from bot.folders import shell_command
from bot.platforms.console.transcript import UNSURE
from bot.platforms.console.turn_tracker import NOTHING_RUNS, NOTHING_UNKNOWN
from tests.platforms.console.chat import chatting
from tests.platforms.console.scripted_engine import ScriptedTurn, a_turn, calling, forever
from tests.platforms.console.terminal import prompt_line
from tests.platforms.console.test_headless import process

HINT = "Did it happen? /check finds out, /again runs it once more"


loses = calling(
    "I do not know whether it was saved.",
    StepStatus.UNKNOWN,
    "The line broke. It may or may not have happened. Check, and tell the person.",
)


async def waits_behind_an_approval(turn: ScriptedTurn) -> None:
    turn.turn = a_turn(turn.turn.id, turn.turn.question.text, status=TurnStatus.QUEUED)
    await turn.show(ahead=1, blocker=BlockingTurn("t0", awaits_approval=True))
    await asyncio.Event().wait()


async def test_a_call_of_unknown_outcome_says_so_and_offers_actions() -> None:
    async with chatting({"go": loses}) as chat:
        await chat.type("go", "? notes.add_note  may or may not have happened  The line broke.", f"  {UNSURE}")
        await chat.terminal.prompts()
        assert "Check, and tell" not in chat.terminal.text
        assert chat.terminal.text.count(UNSURE) == 1


async def test_check_and_again_are_about_the_newest_call_of_unknown_outcome() -> None:
    async with chatting({"go": loses}) as chat:
        await chat.type("go", UNSURE)
        await chat.type("/check", prompt_line("/check"), "You said: Check it")
        await chat.type("/again", prompt_line("/again"), "You said: Run it again")
        assert chat.engine.repeated == [("check", "t1", 0), ("again", "t1", 0)]


async def test_taken_up_twice_it_says_that_it_was_done_already() -> None:
    async with chatting({"go": loses}) as chat:
        await chat.type("go", UNSURE)
        for command, answer in (("/check", "You said: Check it"), ("/again", "You said: Run it again")):
            await chat.type(command, answer)
        await chat.type("/check", "That call has been checked already.")
        await chat.type("/again", "That call has been run again already.")
        await chat.type("still there?", "You said: still there?")


async def test_where_nothing_is_unknown_they_say_so() -> None:
    async with chatting() as chat:
        await chat.type("hello", "You said: hello")
        for times, command in enumerate(("/check", "/again"), start=1):
            await chat.type(command)
            await chat.terminal.until(lambda t=times: chat.terminal.text.count(NOTHING_UNKNOWN) == t, command)  # type: ignore[misc]
        await chat.type("/stop", NOTHING_RUNS)
        assert chat.engine.repeated == []


async def test_a_message_that_waits_behind_an_approval_says_so_and_stop_clears_the_way() -> None:
    async with chatting({"go": waits_behind_an_approval}) as chat:
        blocker = a_turn("t0", "file it", status=TurnStatus.WAITING)
        chat.engine.on_disk = {"t0": ScriptedTurn(chat.engine, blocker).view()}
        await chat.type("go", "Waiting behind an approval  /stop stops that · Ctrl-C takes this back")
        await chat.press("/stop\r", "Stopped what was ahead.")
        assert chat.engine.stops == ["t0"]
        await chat.press("\x03", "  Stopped.")
        assert chat.engine.stops == ["t0", "t1"]


async def test_a_message_behind_one_that_is_at_work_says_so_and_offers_nothing() -> None:
    async def waits(turn: ScriptedTurn) -> None:
        turn.turn = a_turn(turn.turn.id, turn.turn.question.text, status=TurnStatus.QUEUED)
        await turn.show(ahead=2, blocker=BlockingTurn("t0"))
        await asyncio.Event().wait()

    async with chatting({"go": waits}) as chat:
        await chat.type("go", "Waiting behind 2 earlier messages")
        assert "/stop" not in chat.terminal.text


async def test_stop_stops_a_running_turn_like_ctrl_c_and_waits_for_nothing() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        await chat.press("/stop\r", prompt_line("/stop"), "  Stopped.")
        await chat.terminal.prompts()
        assert chat.engine.stops == ["t1"]


async def test_in_a_pipe_they_are_lines_like_any_other() -> None:
    async with process(None, {"go": loses}, stdin="/check\ngo\n/check\n/again\n/again\n/stop\nbye") as running:
        assert await running.code() == 1
        said = "I do not know whether it was saved.\n\nYou said: Check it\n\nYou said: Run it again\n\nYou said: bye\n"
        assert running.out == said
        lines = running.err.splitlines()
        assert lines[0] == NOTHING_UNKNOWN
        assert lines[1].endswith("notes.add_note  may or may not have happened  The line broke.")
        assert lines[2:] == [
            f"  {HINT}: {shell_command('chat --conversation c1')}",
            "That call has been run again already.",
            NOTHING_RUNS,
        ]
        assert running.engine.repeated == [("check", "t1", 0), ("again", "t1", 0), ("again", "t1", 0)]


async def test_asked_once_with_nothing_to_take_up_the_exit_code_is_1() -> None:
    for command, words in (("/check", NOTHING_UNKNOWN), ("/again", NOTHING_UNKNOWN), ("/stop", NOTHING_RUNS)):
        async with process(command) as running:
            assert await running.code() == 1
            assert (running.out, running.err) == ("", f"{words}\n")


async def test_a_program_reads_in_the_events_what_can_be_checked() -> None:
    async with process("go", {"go": loses}, json=True) as running:
        assert await running.code() == 0
        *_, ended = (event["data"] for event in running.events if event["event"] == "tool_call_update")
        assert (ended["status"], ended["responseId"], ended["outputIndex"]) == ("UNKNOWN", "t1", 0)


async def test_without_a_screen_a_message_behind_an_approval_says_once_how_to_get_on() -> None:
    async def waits(turn: ScriptedTurn) -> None:
        running = turn.turn
        turn.turn = a_turn(running.id, running.question.text, status=TurnStatus.QUEUED)
        for _ in range(2):
            await turn.show(ahead=1, blocker=BlockingTurn("t0", awaits_approval=True))
        turn.turn = running
        await turn.end("At last.")

    async with process("go", {"go": waits}) as running:
        assert await running.code() == 0
        assert running.out == "At last.\n"
        way = f"To approve or stop that: {shell_command('chat --conversation c1')}"
        assert running.err == f"  Waiting behind an approval. {way}\n"
    async with process("go", {"go": waits}, json=True) as running:
        assert await running.code() == 0
        first, *rest = running.events
        assert (first["event"], first["data"]["status"], first["data"]["ahead"]) == ("init", "CREATED", 1)
        assert [event["event"] for event in rest] == ["message", "conversation_status", "done"]
