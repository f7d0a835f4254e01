"""The terminal on a PostgreSQL server: everything as on a file, and several at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.platforms.console.transcript import UNSURE as HINT
from tests.fakes.llm import FakeLanguageModel
from tests.fakes.terminal import PATIENCE, ProgramOnTerminal
from tests.platforms.console.terminal import prompt_line
from tests.postgres import Server, end_leases
from tests.stories.counted_calls import COUNT_IT, UNSURE, CountingPlace, counting
from tests.stories.installation import Installation
from tests.stories.test_approvals import card

PASSWORD = "correct-horse-7"
WAITING = "Waiting behind an approval"
clerk = counting


@pytest.fixture
def place(tmp_path: Path, postgres: Server, model: FakeLanguageModel) -> CountingPlace:
    """A workplace on a server."""
    return CountingPlace(tmp_path, model, DATABASE_URL=postgres.fresh())


def test_the_schema_is_made_on_command_and_one_question_is_answered_and_signed_in_advance(
    tmp_path: Path, postgres: Server, model: FakeLanguageModel
) -> None:
    place = CountingPlace(tmp_path, model, DATABASE_URL=postgres.empty())
    empty, made, current = (place.countersign("db", verb) for verb in ("current", "upgrade", "current"))
    assert (empty.code, made.code, current.code) == (1, 0, 0)
    assert empty.out.startswith("database: empty, this release: ")
    release = empty.out.split()[-1]
    assert made.out == f"The database has schema {release} now.\n"
    assert current.out == f"database: {release}, this release: {release}\n"

    said = place.chat("-m", "hello")
    assert (said.code, said.out, said.err) == (0, "You said: hello.\n", "")
    signed = place.chat("-m", COUNT_IT, "--approve", "all")
    assert (signed.code, signed.out, place.run_count) == (0, "It said: recorded once.\n", 1)
    assert not list(place.folder.glob("**/*.db*"))


async def test_a_call_in_which_the_program_died_is_unknown_when_its_lease_is_over_and_is_run_once_more(
    place: CountingPlace,
) -> None:
    await asyncio.to_thread(place.die_in_the_call, "c1")
    assert place.run_count == 1
    async with place.terminal("--conversation", "c1") as terminal:
        # Only the lease can tell that nobody drives the turn any more.
        await terminal.shows(prompt_line(COUNT_IT), "◌ test.count  running")
        await asyncio.to_thread(end_leases, place.environment["DATABASE_URL"])
        await terminal.shows(f"? test.count  {UNSURE}", "I do not know.", HINT)
        assert place.run_count == 1
        await terminal.asks("/again")
        await card(terminal, "▌ Count ")
        await terminal.presses("y", "✓ test.count", "recorded once")
        await terminal.prompts()
        assert terminal.text.count("I do not know.") == 1
    assert place.run_count == 2


async def test_scripts_that_run_side_by_side_get_their_own_answers(place: CountingPlace) -> None:
    questions = [f"question {n}" for n in range(3)]

    async def ask(question: str) -> tuple[int | None, str, str]:
        async with place.begun("-m", question) as program, asyncio.timeout(2 * PATIENCE):
            out, err = await program.communicate()
        return program.returncode, out.decode(), err.decode()

    results = await asyncio.gather(*map(ask, questions))
    assert results == [(0, f"You said: {question}.\n", "") for question in questions]


async def test_two_windows_on_one_conversation_wait_for_each_other_and_both_get_their_answers(
    place: CountingPlace,
) -> None:
    arguments = ("--conversation", "both")
    await asyncio.to_thread(place.chat, "--new", *arguments, "-m", "hello")
    async with place.terminal(*arguments) as one, place.terminal(*arguments) as two:
        for window, question in ((one, "first"), (two, "second")):
            await window.asks(question, f"You said: {question}.")
        await one.asks(COUNT_IT)
        await card(one)
        await two.asks("hello", f"{WAITING}  /stop stops that")
        beside = await asyncio.to_thread(place.chat, *arguments, "-m", "/stop")
        assert (beside.code, beside.out) == (0, "")
        assert "Stopped.\n" in beside.err
        await one.shows("test.count  cancelled, not run", "Stopped.")
        await two.shows("You said: hello.")
        await two.until(lambda: WAITING not in "\n".join(two.lines), "that it waits no longer")

        await one.asks(COUNT_IT)
        await card(one)
        await two.asks("and now?", WAITING)
        await one.presses("y", "▌ Approved.", "✓ test.count", "It said: recorded once.")
        await two.shows("You said: and now?.")
        for window in (one, two):
            await leave(window)
    assert place.run_count == 1


async def leave(window: ProgramOnTerminal) -> None:
    await window.prompts()
    assert await window.leaves() == 0


async def test_a_server_that_is_not_there_is_one_line_that_shows_no_password(tmp_path: Path) -> None:
    nowhere = f"postgresql://clerk:{PASSWORD}@127.0.0.1:1/office"
    place = Installation(tmp_path, {}, DATABASE_URL=nowhere)
    said = await asyncio.to_thread(place.chat, "-m", "hello")
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert line.startswith("countersign: The database postgresql://127.0.0.1")
    assert "Connection refused" in line
    assert "Fix: check that the server runs and that DATABASE_URL names it" in line
    async with place.terminal() as terminal:
        assert await terminal.wait_for_exit() == 1
        await terminal.shows("Connection refused", "Fix: check that the server runs")
        shown = terminal.text
    for text in (said.err, shown, place.log):
        assert PASSWORD not in text
        assert "clerk" not in text
        assert "Traceback" not in text
