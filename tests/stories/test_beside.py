"""Several programs of one person on one SQLite file: windows, scripts, administration and the bot."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import sqlite3
from pathlib import Path

import pytest

from bot.platforms.console.lines import PROMPT
from tests.fakes.llm import FakeLanguageModel, Gate, Hold, Reply, Request, Say
from tests.fakes.programs import python
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import PROJECT, Installation, Outcome
from tests.stories.program import a_bot
from tests.stories.test_approvals import card


async def ran(place: Installation, *words: str, typed: str = "") -> Outcome:
    """Run a command to its end, while other programs run."""
    return await asyncio.to_thread(lambda: place.countersign(*words, typed=typed))


async def leave(terminal: ProgramOnTerminal) -> None:
    await terminal.prompts()
    assert await terminal.leaves() == 0


def guides_scripts() -> list[str]:
    """The lines that the guide for scripts begins with."""
    block = re.search(r"```sh\n(.*?)```", (PROJECT / "docs/scripts.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest.mark.parametrize("beside", ["chat", "run"])
async def test_the_guides_lines_for_scripts_run_while_a_chat_is_open_or_the_bot_runs(
    tmp_path: Path, beside: str
) -> None:
    place = Installation(tmp_path)
    shim = tmp_path / "bin" / "countersign"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(python())} -m bot "$@"\n')
    shim.chmod(0o700)
    environment = {**place.environment, "PATH": f"{shim.parent}:{os.environ['PATH']}"}

    async def lines_run() -> None:
        assert len(guides_scripts()) >= 4
        for line in guides_scripts():
            script = await asyncio.create_subprocess_shell(
                line, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, err = await script.communicate()
            assert script.returncode == 0, (line, err.decode())
            assert out, line
        assert place.notes == ["buy milk"]

    if beside == "run":
        async with a_bot(place) as bot:
            await bot.logs("worker running")
            await lines_run()
            assert await bot.leaves() == 0
        return
    async with place.terminal() as terminal:
        await terminal.shows("Servers", "Try", f"{PROMPT} weather forecast in Tokyo", "lists the commands")
        await lines_run()
        await terminal.asks("list my notes", "buy milk")
        await leave(terminal)


async def test_everything_of_an_administrator_runs_while_a_chat_is_open(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    async with place.terminal() as terminal:
        await terminal.asks("hello", "I am the demo model")
        for line in (
            "chat --list",
            "servers list",
            "servers sync notes",
            "usage",
            "audit head",
            "audit export",
            "audit verify",
            "tokens create ci --role member",
            "tokens list",
            "secrets rotate",
            "db current",
            "db upgrade",
            "db backup copy.db",
            "db export-person console:owner",
            "db forget console:somebody --yes",
            "doctor",
        ):
            outcome = await ran(place, *line.split())
            assert outcome.code == 0, (line, outcome)
        lines = await ran(place, "chat", typed="hello\nlist my notes\n")
        assert (lines.code, "notes.list" in lines.err) == (0, True), lines
        events = (await ran(place, "chat", "--json", "-m", "hello")).events
        assert events[-1]["event"] == "done"
        await terminal.asks("and you?")
        await leave(terminal)


async def test_a_second_window_has_a_conversation_of_its_own_and_goes_on_when_the_first_is_closed(
    tmp_path: Path,
) -> None:
    place = Installation(tmp_path)
    async with place.terminal() as first:
        await first.asks("add a note: from the first")
        await card(first, "from the first")
        async with place.terminal() as second:
            await second.shows("is open elsewhere. This is a new conversation.")
            await second.asks("add a note: from the second")
            screen = await card(second, "from the second")
            assert "from the first" not in screen
            await first.presses("y", "✓ notes.add", "Saved as note #1: from the first")
            assert "from the second" not in first.text
            await leave(first)
            await second.presses("y", "▌ Approved.", "✓ notes.add", "Saved as note #2: from the second")
            await leave(second)
    assert place.notes == ["from the first", "from the second"]
    async with place.terminal() as third:
        await third.shows("Continuing", f"{PROMPT} add a note: from the second")


async def test_a_card_is_answered_in_any_window_and_from_a_script(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    async with place.terminal("--new", "--conversation", "c1") as first:
        await first.asks("add a note: shared")
        await card(first, "shared")
        async with place.terminal("--conversation", "c1") as second:
            await card(second, "shared")
            await second.presses("y", "▌ Approved.", "Saved as note #1: shared")
            await first.shows("Saved as note #1: shared", "▌ Approved by owner")
            await leave(second)
        await first.asks("add a note: from a script")
        await card(first, "from a script")
        approval_id = (await ran(place, "chat", "-m", "/approvals")).out.splitlines()[-1].split()[0]
        approved = await ran(place, "chat", "-m", f"/approvals approve {approval_id}")
        assert approved.code == 0, approved
        await first.shows("Saved as note #2: from a script")
        await leave(first)
    assert place.notes == ["shared", "from a script"]


async def test_a_window_goes_on_with_a_new_conversation_while_the_one_before_it_still_waits(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    async with place.terminal() as first, place.terminal("--new") as second:
        await first.asks("add a note: for later")
        await card(first, "for later")
        await first.presses("\r", "▌ Not run.")
        await first.asks("/new", "A fresh conversation.")
        await first.asks("add a note: at once")
        await card(first, "at once")
        await first.presses("y", "Saved as note #1: at once")
        await second.asks("list my notes", "at once")
        await leave(second)
        await leave(first)


async def test_kill_9_of_one_program_harms_no_other_and_its_question_is_answered_by_the_next(tmp_path: Path) -> None:
    gates = {"of the window": Gate(), "of the script": Gate()}

    def rule(request: Request) -> Reply:
        question = str(request.messages[-1]["content"])
        text = f"The answer to {question}."
        waits = question in gates and sum(question in str(earlier.messages[-1]) for earlier in model.requests) == 1
        return Hold(Say(text), gates[question]) if waits else Say(text)

    with FakeLanguageModel("openai", rule=rule) as model:
        place = Installation(tmp_path, {}, model=model)
        async with place.terminal("--new") as window, place.terminal("--new") as other:
            await other.asks("of another window", "The answer to of another window.")
            script = asyncio.create_task(ran(place, "chat", "-m", "of the script"))
            await asyncio.wrap_future(gates["of the script"].reached)
            await window.asks("of the window")
            await asyncio.wrap_future(gates["of the window"].reached)
            window.signal(signal.SIGKILL)
            await window.wait_for_exit()
            async with place.terminal() as next_window:  # while the others go on
                await next_window.shows("Continuing", "The answer to of the window.")
                gates["of the script"].open()
                assert (await script) == Outcome(0, "The answer to of the script.\n", "")
                await leave(next_window)
            await other.asks("goodbye", "The answer to goodbye.")
            await leave(other)
        gates["of the window"].open()
    asked = [str(request.messages[-1]["content"]) for request in model.requests]
    assert sorted(asked) == sorted([*gates, "of the window", "of another window", "goodbye"])


async def test_a_question_that_a_killed_window_left_in_another_conversation_is_answered_in_the_next_one(
    tmp_path: Path,
) -> None:
    gate = Gate()
    with FakeLanguageModel("openai", Hold(Say("Never seen."), gate), Say("Hello."), Say("The late answer.")) as model:
        place = Installation(tmp_path, {}, model=model)
        async with place.terminal() as window:
            await window.asks("a long question")
            await asyncio.wrap_future(gate.reached)
            assert (await ran(place, "chat", "-m", "hello")).out == "Hello.\n"
            window.signal(signal.SIGKILL)
            await window.wait_for_exit()
        async with place.terminal("--new") as window:
            await window.shows("While you were away (conversation", "a long question", "The late answer.")
            await leave(window)
        gate.open()


async def test_a_window_goes_on_with_the_last_conversation_of_a_window_not_of_a_script(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    assert (await ran(place, "chat", "-m", "the first of all")).code == 0
    async with place.terminal() as window:
        await window.asks("add a note: of the window")
        await card(window, "of the window")
        assert "Continuing" not in window.text
        window.signal(signal.SIGKILL)
        await window.wait_for_exit()
    assert (await ran(place, "chat", "-m", "of a script")).code == 0
    assert (await ran(place, "chat", typed="of a pipe\n/new\nof a pipe, too\n")).code == 0
    assert (await ran(place, "chat", "--json", "-m", "for a program")).code == 0
    by_hand = await ran(place, "chat", "-m", "/mcp run notes list")
    assert (by_hand.code, "notes.list" in by_hand.err) == (0, True), by_hand
    async with place.terminal() as window:
        await card(window, "of the window")
        await window.presses("y", "Saved as note #1: of the window")
        await leave(window)


async def test_a_window_names_the_conversation_in_which_a_call_waits(tmp_path: Path) -> None:
    place = Installation(tmp_path)
    async with place.terminal("--new", "--conversation", "shopping") as window:
        await window.asks("add a note: milk")
        await card(window, "milk")
        async with place.terminal("--new") as other:  # the first shows the card itself
            await other.asks("hello", "I am the demo model")
            assert "waits for you" not in other.text
            await leave(other)
        window.signal(signal.SIGKILL)
        await window.wait_for_exit()
    async with place.terminal("--new") as window:
        await window.shows("1 call waits for you in shopping: /approvals")
        approval_id = (await ran(place, "chat", "-m", "/approvals")).out.splitlines()[-1].split()[0]
        await window.asks(f"/approvals approve {approval_id}")
        await window.shows("Approved.", "In conversation shopping: add a note: milk", "Saved as note #1: milk")
        assert "While you were away (conversation shopping)" not in window.text
        await leave(window)


async def test_twenty_questions_at_once_are_all_answered(tmp_path: Path) -> None:
    with FakeLanguageModel("openai", rule=lambda request: Say(f"Re: {request.messages[-1]['content']}")) as model:
        place = Installation(tmp_path, {}, model=model).afresh()
        outcomes = await asyncio.gather(*(ran(place, "chat", "-m", f"number {n}") for n in range(20)))
    assert outcomes == [Outcome(0, f"Re: number {n}\n", "") for n in range(20)]
    assert len(model.requests) == 20
    assert not (place.data / "countersign.db.processes").exists()


async def test_of_the_bot_there_is_one_and_the_schema_is_changed_alone(tmp_path: Path) -> None:
    place = Installation(tmp_path, {})
    async with a_bot(place) as bot:
        await bot.logs("worker running")
        second = await ran(place, "run")
        assert second.code == 1
        assert re.search(r"in use by process \d+ \(countersign run, since .+\)\. Fix: .*PostgreSQL", second.err), second
        assert (await ran(place, "chat", "-m", "hello")).code == 0
        with sqlite3.connect(place.data / "countersign.db") as database:
            database.execute("drop table alembic_version")
        database.close()
        upgrade = await ran(place, "db", "upgrade")
        assert upgrade.code == 1
        assert re.search(r"in use by process \d+ \(countersign run, since .+\)\. Fix: close it first", upgrade.err)
        older = await ran(place, "chat", "-m", "hello")
        assert older.code == 1
        assert "run `countersign db upgrade`" in older.err
        with sqlite3.connect(place.data / "countersign.db") as database:
            database.execute("create table alembic_version as select '9999' as version_num")
        database.close()
        newer = await ran(place, "chat", "-m", "hello")
        assert newer.code == 1
        assert "which a later release made" in newer.err
