"""The interactive chat: messages, streaming, stop and exit."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from bot.domain.commands import Reply, Table
from bot.domain.messages import assistant
from bot.domain.turns import ModelStep, StepStatus, ToolRef, TurnStatus, TurnView
from bot.errors import DatabaseError, DatabaseHeld
from bot.platforms.console import turn_tracker
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import StartState, Welcome
from bot.ports import EngineApi
from tests.platforms.console.chat import chatting, now
from tests.platforms.console.scripted_engine import (
    ScriptedCommands,
    ScriptedEngine,
    ScriptedTurn,
    a_call,
    a_turn,
    an_approval,
    calling,
    forever,
)
from tests.platforms.console.terminal import prompt_line


async def test_a_question_is_echoed_and_answered() -> None:
    async with chatting() as chat:
        await chat.type("hello", prompt_line("hello"), "You said: hello")
        await chat.terminal.prompts()
        assert chat.terminal.lines == [
            "countersign · demo model · /help",
            "",
            prompt_line("hello"),
            "",
            "You said: hello",
            "",
            prompt_line(),
        ]


async def test_the_prompt_stands_before_the_engine_and_typed_text_waits_for_it() -> None:
    engine: asyncio.Future[EngineApi] = asyncio.get_running_loop().create_future()
    async with chatting(engine=engine) as chat:
        await chat.type("early", prompt_line("early"), "Starting…")
        engine.set_result(chat.engine)
        await chat.terminal.shows("You said: early")


async def test_lines_sent_before_the_program_reads_keys_are_sent_one_by_one() -> None:
    async with chatting() as chat:
        chat.terminal.press("first\rsecond\rth")  # the terminal is still in line mode
        await chat.terminal.shows("You said: first", "You said: second")
        await chat.terminal.prompts("th")
        await chat.press("ird\nline\r", "You said: third")
        assert [message.text for message in chat.engine.received] == ["first", "second", "third\nline"]


async def test_calls_that_wait_in_other_conversations_are_named_at_the_start() -> None:
    turns = [dataclasses.replace(a_turn("t7", "x"), conversation=LocalUser("ana").key(name)) for name in ("c7", "c8")]
    async with chatting(opening=now(StartState("c1", waiting=[*turns, turns[0]]))) as chat:
        await chat.terminal.shows("3 calls wait for you in c7, c8: /approvals")
        done = TurnView(dataclasses.replace(turns[0], status=TurnStatus.DONE), (ModelStep(0, assistant("Saved.")),), 3)
        assert chat.engine.surface is not None
        async for _drawn in chat.engine.surface.deliver(done, {}):
            pass
        await chat.terminal.shows("In conversation c7: x", "Saved.")
    async with chatting(opening=now(StartState("c1"))) as chat:
        await chat.type("hello", "You said: hello")
        assert "/approvals" not in chat.terminal.text


async def test_an_engine_that_cannot_be_had_is_one_line_and_exit_code_1() -> None:
    opening: asyncio.Future[StartState] = asyncio.get_running_loop().create_future()
    async with chatting(opening=opening) as chat:
        await chat.terminal.prompts()
        opening.set_exception(DatabaseHeld("Another chat uses this database.", "Close it."))
        assert await chat.code() == 1
        await chat.terminal.shows("Another chat uses this database. Fix: Close it.")
        assert chat.terminal.is_restored


async def test_a_promise_that_is_broken_is_one_line_and_exit_code_1() -> None:
    opening: asyncio.Future[StartState] = asyncio.get_running_loop().create_future()
    async with chatting(opening=opening) as chat:
        await chat.terminal.prompts()
        opening.cancel()
        assert await chat.code() == 1
        await chat.terminal.shows("The program could not be started.")


async def test_ctrl_c_before_the_engine_is_there_withdraws_the_question() -> None:
    engine: asyncio.Future[EngineApi] = asyncio.get_running_loop().create_future()
    async with chatting(engine=engine) as chat:
        await chat.type("early", "Starting…")
        await chat.press("\x03", "Stopped.")
        engine.set_result(chat.engine)
        await chat.type("late", "You said: late")
        assert [message.text for message in chat.engine.received] == ["late"]


async def test_ctrl_c_before_the_database_is_there_withdraws_the_question() -> None:
    opening: asyncio.Future[StartState] = asyncio.get_running_loop().create_future()
    async with chatting(opening=opening) as chat:
        await chat.type("early", "Starting…", "queued: early")
        chat.terminal.press("\x03")
        await chat.terminal.prompts("early")
        opening.set_result(StartState("c1"))
        chat.terminal.press("\x15")
        await chat.type("late", "You said: late")
        assert [message.text for message in chat.engine.received] == ["late"]


async def test_a_stop_that_fails_says_so_and_can_be_tried_again() -> None:
    async with chatting({"go": forever}) as chat:
        chat.engine.refusals.append(DatabaseError("The database is busy."))
        await chat.type("go", "Thinking…")
        await chat.press("\x03", "The database is busy.")
        await chat.press("\x03", "Stopped.")
        await chat.terminal.prompts()


async def test_finished_blocks_are_printed_once_and_the_last_one_grows() -> None:
    half = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        await turn.stream("# Title\n\nFirst par", "# Title\n\nFirst paragraph.\n\n- one\n- tw")
        await half.wait()
        await turn.end("# Title\n\nFirst paragraph.\n\n- one\n- two\n- three")

    async with chatting({"go": script}) as chat:
        await chat.type("go", "First paragraph.", "• tw")
        half.set()
        await chat.terminal.shows("• three")
        await chat.terminal.prompts()
        for once in ("Title", "First paragraph.", "• one", "• two"):
            assert chat.terminal.text.count(once) == 1


async def test_a_tool_line_is_updated_in_place() -> None:
    done = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        n = await turn.call(StepStatus.STARTED, tool=ToolRef("weather", "forecast", read_only=True))
        await turn.show(running=frozenset({n}), progress={n: "asking the satellite"})
        await done.wait()
        await turn.update(n, status=StepStatus.DONE, result="Sunny")
        await turn.end("It is sunny.")

    async with chatting({"weather?": script}) as chat:
        await chat.type("weather?", "◌ weather.forecast  asking the satellite")
        done.set()
        await chat.terminal.shows("✓ weather.forecast  Sunny", "It is sunny.")
        assert chat.terminal.text.count("weather.forecast") == 1


async def test_a_failure_and_a_remark_are_shown() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.say("Half", "The reply was cut at its length limit.")
        await turn.end(status=TurnStatus.FAILED, failure="The model is not reachable.")

    async with chatting({"go": script}) as chat:
        await chat.type("go", "Half", "The reply was cut at its length limit.", "The model is not reachable.")
        await chat.terminal.prompts()


async def test_a_long_block_stays_inside_the_screen_and_is_complete_in_the_end() -> None:
    wall = "\n".join(f"- point {n}" for n in range(60))
    cut = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        await turn.stream(wall.removesuffix("- point 59"))
        await cut.wait()
        await turn.end(wall)

    async with chatting({"go": script}, size=(60, 12)) as chat:
        await chat.type("go", "point 58")
        assert "…" in "\n".join(chat.terminal.lines)
        cut.set()
        await chat.terminal.shows("point 59")
        await chat.terminal.prompts()
        points = [line for line in chat.terminal.text.splitlines() if "point" in line]
        assert points == [f" • point {n}" for n in range(60)]


async def test_a_resized_terminal_goes_on() -> None:
    wider = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        await turn.stream("word " * 40)
        await wider.wait()
        await turn.end("word " * 40 + "end")

    async with chatting({"go": script}, size=(100, 30)) as chat:
        await chat.type("go", "word word")
        chat.terminal.resize(30, 8)
        await chat.terminal.until(lambda: max(map(len, chat.terminal.lines)) <= 30, "narrow lines")
        wider.set()
        await chat.terminal.shows("end")
        await chat.terminal.prompts()


async def test_text_from_models_and_tools_moves_no_cursor_and_fakes_no_card() -> None:
    evil = "\x1b[2J\x1b[1;1H\x1b]0;owned\x07\u202e▌ Transfer money?\r▌ [y] once\x9b31m\u200b end"

    async with chatting({"go": calling(evil, StepStatus.DONE, evil)}) as chat:
        await chat.type("go", "| [y] once end")
        await chat.terminal.prompts()
        assert chat.terminal.lines[0] == "countersign · demo model · /help"
        assert "▌" not in chat.terminal.text
        assert b"\x1b[2J" not in chat.terminal.raw
        assert b"\x1b]0;" not in chat.terminal.raw


async def test_no_color_means_none() -> None:
    async with chatting(environ={"TERM": "xterm-256color", "NO_COLOR": "1"}) as chat:
        await chat.type("**bold** `code`", "You said: bold code")
        assert chat.terminal.colours == set()


async def test_ctrl_c_stops_the_turn_and_the_chat_goes_on() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        await chat.press("\x03", "Stopped.")
        await chat.type("still there?", "You said: still there?")
        assert chat.engine.stops == ["t1"]


async def test_a_second_ctrl_c_while_stopping_leaves() -> None:
    async with chatting({"go": forever}) as chat:
        chat.engine.stopping.clear()
        await chat.type("go", "Thinking…")
        await chat.press("\x03", "Stopping…")
        chat.terminal.press("\x03")
        assert await chat.code() == 130
        assert chat.terminal.is_restored
        chat.engine.stopping.set()


async def test_ctrl_c_at_the_prompt_clears_then_warns_then_leaves() -> None:
    async with chatting() as chat:
        await chat.terminal.prompts()
        chat.terminal.press("draft")
        await chat.terminal.prompts("draft")
        chat.terminal.press("\x03")
        await chat.terminal.prompts()
        await chat.press("\x03", "Press Ctrl-C again or Ctrl-D to leave")
        chat.terminal.press("\x03")
        assert await chat.code() == 130


@pytest.mark.parametrize("goodbye", ["\x04", "/quit\r", "exit\r"])
async def test_leaving_gives_the_terminal_back(goodbye: str) -> None:
    async with chatting() as chat:
        await chat.terminal.prompts()
        chat.terminal.press(goodbye)
        assert await chat.code() == 0
        assert chat.terminal.is_restored


async def test_cancelling_the_chat_gives_the_terminal_back() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        chat.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chat.code()
        assert chat.terminal.is_restored


async def test_text_typed_during_a_turn_starts_the_next_prompt() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        chat.terminal.press("and another")
        await chat.terminal.prompts("and another")
        await chat.press("\x03", "Stopped.")
        await chat.terminal.prompts("and another")


async def test_a_line_sent_during_a_turn_is_queued_and_asked_next() -> None:
    release = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        await turn.show()
        await release.wait()
        await turn.end("first answer")

    async with chatting({"go": script}) as chat:
        await chat.type("go", "Thinking…")
        await chat.press("second\r", "queued: second")
        release.set()
        await chat.terminal.shows("first answer", prompt_line("second"), "You said: second")
        assert [message.text for message in chat.engine.received] == ["go", "second"]


async def test_a_queued_line_comes_back_to_the_prompt_when_the_turn_is_stopped() -> None:
    async with chatting({"go": forever}) as chat:
        await chat.type("go", "Thinking…")
        await chat.press("second\r", "queued: second")
        await chat.press("\x03", "Stopped.")
        await chat.terminal.prompts("second")


async def test_an_unknown_command_is_not_sent_to_the_model() -> None:
    async with chatting() as chat:
        await chat.type("/hlep", "There is no /hlep. Did you mean /help?")
        assert chat.engine.received == []


async def test_help_names_every_command() -> None:
    async with chatting() as chat:
        await chat.type("?", "/help", "/mcp", "/new", "/quit", "Ctrl-C")


async def test_mcp_is_answered_by_the_commands_and_drawn_as_a_table() -> None:
    reply = Reply(
        "**2 servers**",
        Table(("name", "state"), (("notes", "on"), ("weather", "\x1b[31moff"))),
        (("file", "mcp.json"),),
    )
    commands = ScriptedCommands(Reply("Looking…"), reply)
    async with chatting(commands=commands) as chat:
        await chat.type('/mcp show "my notes"', "2 servers", "name", "weather", "off", "mcp.json")
        (request,) = commands.requests
        assert getattr(request, "words", None) == ("show", "my notes")
        assert "**" not in chat.terminal.text


async def test_new_begins_another_conversation() -> None:
    async with chatting() as chat:
        await chat.type("one", "You said: one")
        await chat.type("/new", "A fresh conversation.")
        await chat.type("two", "You said: two")
        first, second = (message.conversation for message in chat.engine.received)
        assert first.thread == "c1"
        assert second.thread not in ("", "c1")


WELCOME = Welcome({"notes": 4, "weather": 1}, ("tickets",), ("list notes", "weather in Oslo"), is_demo=True)


async def test_a_new_conversation_begins_with_connected_servers_and_examples() -> None:
    welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
    async with chatting(welcome=welcome) as chat:
        await chat.terminal.prompts()
        chat.terminal.press("half a sent")
        await chat.terminal.prompts("half a sent")
        welcome.set_result(WELCOME)
        await chat.terminal.shows("lists the commands")
        await chat.terminal.prompts("half a sent")
        assert chat.terminal.lines == [
            "countersign · demo model · /help",
            "",
            "  Model       a demo without AI. A real one answers with OPENAI_API_KEY or",
            "              ANTHROPIC_API_KEY in .env",
            "  Servers     notes, weather · 5 tools",
            "  In trouble  tickets. /mcp list says why",
            "  Try         › list notes",
            "              › weather in Oslo",
            "  /           lists the commands",
            "",
            prompt_line("half a sent"),
        ]


async def test_without_a_server_the_first_screen_says_how_to_add_one() -> None:
    async with chatting(welcome=now(Welcome({}))) as chat:
        await chat.terminal.shows("Servers  none that has tools yet. /mcp add adds one\n  /        lists the commands")


async def test_while_servers_start_the_first_screen_names_them() -> None:
    async with chatting(welcome=now(Welcome({}, starting=("knowledge", "notes", "weather")))) as chat:
        await chat.terminal.shows("Servers  starting: knowledge, notes, weather\n  /")
    async with chatting(welcome=now(Welcome({"notes": 3}, starting=("weather",)))) as chat:
        await chat.terminal.shows("Servers  notes · 3 tools\n           starting: weather\n")


async def test_a_continued_conversation_has_no_first_screen() -> None:
    welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
    async with chatting(welcome=welcome) as chat:
        await chat.type("hello", "You said: hello")
        welcome.set_result(WELCOME)
        await chat.type("bye", "You said: bye")
        assert "Servers" not in chat.terminal.text


async def test_an_earlier_conversation_has_a_reminder_and_no_first_screen() -> None:
    view = TurnView(a_turn("t0", "before", status=TurnStatus.DONE), (ModelStep(0, assistant("It was this.")),), 3)
    async with chatting(opening=now(StartState("c1", (view,))), welcome=now(WELCOME)) as chat:
        await chat.terminal.shows("It was this.")
        await chat.type("bye", "You said: bye")
        assert "Servers" not in chat.terminal.text


async def test_an_earlier_conversation_is_continued_with_a_reminder() -> None:
    done = a_turn("t0", "what was it?", status=TurnStatus.DONE)
    earlier = TurnView(done, (ModelStep(0, assistant("It was **this**.\nAnd more.")),), 3)
    async with chatting(opening=now(StartState("c1", (earlier,), turns=3))) as chat:
        await chat.terminal.shows("Continuing c1 (3 earlier turns). /new starts a fresh one.", "It was this. And more.")
        await chat.terminal.prompts()


async def test_text_typed_before_the_conversation_is_known_comes_below_its_reminder() -> None:
    opening: asyncio.Future[StartState] = asyncio.get_running_loop().create_future()
    view = TurnView(a_turn("t0", "before", status=TurnStatus.DONE), (ModelStep(0, assistant("It was this.")),), 3)
    async with chatting(opening=opening) as chat:
        await chat.type("early")
        await chat.press("also\r", "queued: early", "queued: also")
        opening.set_result(StartState("c1", (view,), turns=3))
        await chat.terminal.shows("You said: also")
        lines = [line for line in chat.terminal.lines if line]
        order = (
            "Continuing c1",
            "It was this.",
            prompt_line("early"),
            "You said: early",
            prompt_line("also"),
            "You said: also",
        )
        assert [next(n for n, line in enumerate(lines) if text in line) for text in order] == sorted(
            next(n for n, line in enumerate(lines) if text in line) for text in order
        )


async def test_an_answer_to_a_turn_from_elsewhere_appears_above_the_open_prompt() -> None:
    async with chatting() as chat:
        await chat.terminal.prompts()
        chat.terminal.press("half a sent")
        await chat.terminal.prompts("half a sent")
        other = a_turn("old", "what about \x1b[31mthis?", "c0", status=TurnStatus.DONE)
        view = TurnView(other, (ModelStep(0, assistant("The late answer.")),), 3)
        drawn = [each async for each in chat.engine.surface.deliver(view, {})]
        await chat.terminal.shows("While you were away (conversation c0): what about this?", "The late answer.")
        await chat.terminal.prompts("half a sent")
        again = [each async for each in chat.engine.surface.deliver(view, {})]
        assert drawn == again
        assert chat.terminal.text.count("The late answer.") == 1


async def test_a_drawing_is_out_before_it_is_said_to_be() -> None:
    async with chatting() as chat:
        await chat.terminal.prompts()
        view = TurnView(a_turn("old", "q", "c0", status=TurnStatus.DONE), (ModelStep(0, assistant("Durable.")),), 1)
        async for _drawn in chat.engine.surface.deliver(view, {}):
            await chat.terminal.shows("Durable.")


async def test_a_reply_that_starts_again_says_so() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.stream("First try.\n\nMore", "Second")
        await turn.end("Second try.")

    async with chatting({"go": script}) as chat:
        await chat.type("go", "First try.", "The reply was interrupted and starts again.", "Second try.")


async def test_a_result_that_the_answer_repeats_is_shown_once() -> None:
    streaming = asyncio.Event()

    async def script(turn: ScriptedTurn) -> None:
        await turn.call(StepStatus.DONE, "Saved as note #7: **buy** milk")
        await turn.show()
        await streaming.wait()
        await turn.stream("Here", "Here you are:\n\nSaved as note #7: **buy** milk")
        await turn.end("Here you are:\n\nSaved as note #7: **buy** milk\n\nAnything else?")

    async with chatting({"go": script}) as chat:
        await chat.type("go", "✓ notes.add_note  Saved as note #7")
        streaming.set()
        await chat.terminal.shows("✓ notes.add_note\n\nHere you are:", "Anything else?")
        await chat.terminal.prompts()
        assert chat.terminal.text.count("Saved as note #7") == 1


async def test_a_result_that_the_answer_does_not_repeat_stays_at_its_call() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.call(StepStatus.DONE, "Saved as note #7")
        await turn.stream("I", "I have kept that for you. " * 10)
        await turn.end("I have kept that for you. " * 10)

    async with chatting({"go": script}) as chat:
        await chat.type("go", "✓ notes.add_note  Saved as note #7\n\nI have kept")


async def test_a_turn_is_printed_once_though_it_is_polled_while_its_end_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_tracker, "POLL_SECONDS", 0.01)
    reads = 0

    async def script(turn: ScriptedTurn) -> None:
        await turn.ask(an_approval())
        await turn.update(0, result="You rolled 4 of 6.")
        await turn.stream("You rolled", "You rolled 4 of 6.")
        turn.steps.append(ModelStep(1, assistant("You rolled 4 of 6.")))
        turn.turn = dataclasses.replace(turn.turn, status=TurnStatus.DONE)
        turn.revision += 1
        turn.engine.on_disk[turn.turn.id] = turn.view()
        async for _ref in turn.engine.surface.deliver(turn.view(), {}):
            before = reads
            while reads < before + 3:
                await asyncio.sleep(0.01)

    async with chatting({"go": script}) as chat:
        read = chat.engine.view

        async def view(turn_id: str) -> TurnView:
            nonlocal reads
            reads += 1
            return await read(turn_id)

        monkeypatch.setattr(chat.engine, "view", view)
        await chat.type("go", "[y] once")
        await chat.press("y", "✓ notes.add_note\n\nYou rolled 4 of 6.")
        await chat.terminal.prompts()
        assert chat.terminal.text.count("✓ notes.add_note") == 1
        assert chat.terminal.text.count("You rolled 4 of 6.") == 1


async def test_views_that_come_twice_are_printed_once() -> None:
    async def script(turn: ScriptedTurn) -> None:
        await turn.call(StepStatus.DONE, "fine")
        await turn.show()
        await turn.end("Answer.")
        await turn.show()

    async with chatting({"go": script}) as chat:
        await chat.type("go", "Answer.")
        await chat.type("next", "You said: next")
        assert chat.terminal.text.count("Answer.") == 1
        assert chat.terminal.text.count("notes.add_note") == 1


async def test_several_lines_can_be_typed_and_pasted_without_being_sent() -> None:
    async with chatting() as chat:
        await chat.terminal.prompts()
        chat.terminal.press("one\\\r")
        chat.terminal.press("two\n")
        await chat.press("\x1b[200~three\nfour\x1b[201~", "four")
        await chat.press("\r", "You said: one")
        assert [message.text for message in chat.engine.received] == ["one\ntwo\nthree\nfour"]


async def test_a_long_text_is_pasted_in_one_piece() -> None:
    pasted = [f"line {n} \x1b[31m of many" for n in range(200)]
    async with chatting(size=(60, 20)) as chat:
        await chat.terminal.prompts()
        await chat.press("\x1b[200~" + "\r\n".join(pasted) + "\x1b[201~", "line 199")
        assert sum("of many" in line for line in chat.terminal.lines) <= 8
        await chat.press("\r", prompt_line("line 0"), "  line 198  of many")
        await chat.terminal.prompts()
        (message,) = chat.engine.received
        assert message.text.split("\n") == pasted
        assert b"\x1b[31m of many" not in chat.terminal.raw


async def test_ctrl_r_finds_earlier_lines(tmp_path: Path) -> None:
    async with chatting(history=tmp_path / "history") as chat:
        for line in ("add a note: buy milk", "what is the weather?"):
            await chat.type(line, f"You said: {line}")
        await chat.terminal.prompts()
        chat.terminal.press("\x12milk")
        await chat.terminal.until(
            lambda: prompt_line("add a note: buy milk") in chat.terminal.lines[-2:], "what was found"
        )
        chat.terminal.press("\r")
        await chat.terminal.prompts("add a note: buy milk")


async def test_a_history_that_cannot_be_kept_is_no_reason_to_stop(tmp_path: Path) -> None:
    async with chatting(history=tmp_path) as chat:
        await chat.type("hello", "You said: hello")
        await chat.terminal.prompts()
        chat.terminal.press("\x1b[A")
        await chat.terminal.prompts("hello")


async def test_tab_completes_commands_and_their_arguments() -> None:
    lines = ("mcp list", "mcp tools", "mcp show", "mcp show notes", "mcp show weather")
    async with chatting(commands=ScriptedCommands(lines=lines)) as chat:
        await chat.terminal.prompts()
        chat.terminal.press("/mc\t")
        await chat.terminal.prompts("/mcp")
        chat.terminal.press(" sh\t")
        await chat.terminal.prompts("/mcp show")
        await chat.press(" \t", "notes", "weather")
        chat.terminal.press("w\t")
        await chat.terminal.prompts("/mcp show weather")


async def test_lines_are_remembered_but_secrets_are_not(tmp_path: Path) -> None:
    file = tmp_path / "data" / "history"
    async with chatting(history=file) as chat:
        for line in ("remember me", "my password is hunter2"):
            await chat.type(line, f"You said: {line}")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in file.read_text()
    async with chatting(history=file) as chat:
        await chat.terminal.prompts()
        chat.terminal.press("\x1b[A")
        await chat.terminal.prompts("remember me")


async def test_a_turn_that_an_earlier_process_left_running_is_followed() -> None:
    left = TurnView(a_turn("t0", "left behind"), (a_call(0, StepStatus.STARTED),), 1)

    async with chatting(opening=now(StartState("c1", (left,)))) as chat:
        await chat.terminal.shows(prompt_line("left behind"), "◌ notes.add_note")
        ended = dataclasses.replace(left.turn, status=TurnStatus.DONE)
        steps = (a_call(0, StepStatus.DONE, "ok"), ModelStep(1, assistant("Finished after all.")))
        async for _drawn in chat.engine.surface.deliver(TurnView(ended, steps, 2), {}):
            pass
        await chat.terminal.shows("✓ notes.add_note  ok", "Finished after all.")
        await chat.type("next", "You said: next")


async def test_a_line_sent_before_an_open_turn_was_known_runs_after_it_and_can_be_stopped() -> None:
    opening: asyncio.Future[StartState] = asyncio.get_running_loop().create_future()
    async with chatting({"go": forever}, opening=opening) as chat:
        await chat.type("go", "queued: go")
        left = TurnView(a_turn("t0", "left behind"), (a_call(0, StepStatus.STARTED),), 1)
        opening.set_result(StartState("c1", (left,)))
        await chat.terminal.shows(prompt_line("left behind"))
        assert chat.engine.received == []
        ended = dataclasses.replace(left.turn, status=TurnStatus.DONE)
        async for _drawn in chat.engine.surface.deliver(TurnView(ended, (a_call(0, StepStatus.DONE, "ok"),), 2), {}):
            pass
        await chat.terminal.until(lambda: bool(chat.engine.received), "the question")
        await chat.press("\x03", "Stopped.")
        assert chat.engine.stops == ["t1"]


def test_the_scripted_engine_is_a_front_door() -> None:
    door: EngineApi = ScriptedEngine()
    assert door is not None
